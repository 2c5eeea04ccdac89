"""Every element type that a schema allows, for every operator and version: one small model each, run and compared."""
