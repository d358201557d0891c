#!/bin/bash
# Builds an image for both architectures, pushes it, signs it, and attests what it is made of (sign.sh). Needs
# docker with buildx, cosign, crane, and a login at the registry.
# Usage: images/release.sh PROVIDER VERSION REPOSITORY [FOLDER for the SBOMs]
#   images/release.sh aws 0.1.0 ghcr.io/someone dist
set -euo pipefail
cd "$(dirname "$0")/.."
provider=$1 version=$2 image=$3/karpenter-core-$1 folder=${4:-dist}

argument() { sed -n "s/^ARG $1=//p" images/Dockerfile; }
digest() { docker buildx imagetools inspect "$1" --format '{{.Manifest.Digest}}'; }

base=$(argument BASE) builder=$(argument BUILDER)
# The tags of today, by digest: the labels of the image keep which they were.
base_digest=${BASE_DIGEST:-$(digest "$base")}
builder_digest=${BUILDER_DIGEST:-$(digest "$builder")}
epoch=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH=$epoch

build() { # further options of buildx
    docker buildx build --file images/Dockerfile \
        --platform linux/amd64,linux/arm64 \
        --build-arg "BASE=${base%%:*}@$base_digest" \
        --build-arg "BASE_DIGEST=$base_digest" \
        --build-arg "BUILDER=${builder%%:*}@$builder_digest" \
        --build-arg "CREATED=$(date --utc --date "@$epoch" +%Y-%m-%dT%H:%M:%SZ)" \
        --build-arg "PROVIDER=$provider" \
        --build-arg "REVISION=$(git rev-parse HEAD)" \
        --build-arg "SOURCE=${SOURCE:-$(git config --get remote.origin.url)}" \
        --build-arg "SOURCE_DATE_EPOCH=$epoch" \
        --build-arg "VERSION=$version" \
        "$@" .
}

metadata=$(mktemp)
layers=$(mktemp -d)
trap 'rm -rf "$metadata" "$layers"' EXIT

build --attest type=provenance,mode=max --attest type=sbom --metadata-file "$metadata" \
    --output "type=image,name=$image:$version,push=true,rewrite-timestamp=true"
pushed=$image@$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["containerimage.digest"])' "$metadata")

build --target layer --output "type=local,dest=$layers"
images/sign.sh "$pushed" "$provider" "$version" "$layers" "$folder"
echo "$pushed base=$base_digest builder=$builder_digest"
