#!/bin/sh
# Copies crds/ into the chart. The files in crds/ are the ones to edit; tests/cluster/test_chart.py compares them byte for byte.
set -eu
cd "$(dirname "$0")/.."
mkdir -p charts/suture/files/crds
rm -f charts/suture/files/crds/*.yaml
cp crds/*.yaml charts/suture/files/crds/
