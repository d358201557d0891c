"""Plans and records for `karpenter run --observe`, without any change."""
