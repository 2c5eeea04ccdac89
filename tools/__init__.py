"""What developers run, beside `dev`."""
