"""All that is measured and tested on a GPU, on a bare machine: `./dev gpu`."""
