"""Programs that developers run, beside `dev`."""
