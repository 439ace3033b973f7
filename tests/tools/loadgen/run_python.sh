#!/bin/bash
# Runs a Python script with its arguments; Debian has no `python` for py_test.
exec python3 "$@"
