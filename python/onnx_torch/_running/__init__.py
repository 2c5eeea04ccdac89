"""The parts that models run with: values, saved forms, measured runs, operators of your own."""
