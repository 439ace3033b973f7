#!/bin/bash
# Runs end_to_end_test.py with the paths of the programs it drives.
exec python3 "$@"
