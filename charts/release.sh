#!/bin/bash
# Packages both charts with a version, pushes and signs them. Needs helm, cosign, and a login at the registry.
# HELM_PUSH_OPTIONS are further options of `helm push`.
# Usage: charts/release.sh VERSION REPOSITORY [FOLDER for the packages]
#   charts/release.sh 0.1.0 ghcr.io/someone dist
set -euo pipefail
version=$1 repository=$2/charts folder=$(realpath -m "${3:-dist}")
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for chart in karpenter-crd karpenter; do
    helm package "charts/$chart" --version "$version" --app-version "$version" --destination "$folder"
    # shellcheck disable=SC2086 # several words
    helm push "$folder/$chart-$version.tgz" "oci://$repository" ${HELM_PUSH_OPTIONS:-} 2>&1 | tee "$log"
    digest=$(sed -n 's/^Digest: *//p' "$log")
    cosign sign --yes "$repository/$chart@$digest"
done
