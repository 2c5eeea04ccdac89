"""The work of `./dev`, done with the standard library alone and on any Python from 3.9 on: nothing is installed yet."""
