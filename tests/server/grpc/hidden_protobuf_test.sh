#!/bin/bash
# The daemon exports no symbol of protobuf.
set -euo pipefail
symbols=$(nm -D "$1")
grep -q ' U __libc_start_main' <<< "$symbols" ||
  { echo "hidden_protobuf_test: $1 has no symbols for the loader" >&2; exit 1; }
defined=$(nm -DC --defined-only "$1")
if grep 'google::protobuf' <<< "$defined"; then
  echo "hidden_protobuf_test: $1 exports the symbols above" >&2
  exit 1
fi
