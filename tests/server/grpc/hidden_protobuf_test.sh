#!/bin/bash
# The daemon exports no symbol of protobuf.
set -euo pipefail
exported=$(nm -DC --defined-only "$1" | grep -c 'google::protobuf' || true)
if [[ "$exported" != 0 ]]; then
  echo "$1 exports $exported symbols of google::protobuf" >&2
  exit 1
fi
