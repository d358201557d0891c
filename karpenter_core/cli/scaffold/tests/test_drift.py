"""Tests which changes cause drift."""

from __future__ import annotations

from karpenter_provider_tinycloud.api import TinyCloudNodeClassSpec, static_hash


def test_another_disk_is_drift():
    assert static_hash(TinyCloudNodeClassSpec(disk_gib=50)) != static_hash(TinyCloudNodeClassSpec())


def test_another_image_does_not_change_the_static_hash():
    assert static_hash(TinyCloudNodeClassSpec(image="x")) == static_hash(TinyCloudNodeClassSpec())
