#!/bin/bash
# Signs a pushed image, and attests the image of each architecture by the list of what it is made of. Needs
# cosign, crane, and a login at the registry. cosign asks the workflow's identity for a certificate; with
# COSIGN_KEY and the like it takes a key, as the test of a release does.
# Usage: images/sign.sh IMAGE@DIGEST PROVIDER VERSION LAYERS FOLDER
#   LAYERS has the folders linux_amd64 and linux_arm64, as docker buildx writes them; FOLDER gets the SBOMs.
set -euo pipefail
pushed=$1 provider=$2 version=$3 layers=$4 folder=$5
here=$(dirname "$0")

mkdir -p "$folder"
cosign sign --yes "$pushed"
index=$(crane manifest "$pushed")
# Packages of one architecture are not always those of the other: each image is attested by its own list.
for arch in amd64 arm64; do
    manifest=$(python3 "$here/platform_digest.py" "$arch" <<<"$index")
    sbom=$folder/karpenter-core-$provider-$version-$arch.cdx.json
    cp "$layers/linux_$arch/usr/local/share/sbom/karpenter-core-$provider.cdx.json" "$sbom"
    cosign attest --yes --type cyclonedx --predicate "$sbom" "${pushed%@*}@$manifest"
done
