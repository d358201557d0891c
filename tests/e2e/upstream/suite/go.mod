module upstream/suite

go 1.26.5

require sigs.k8s.io/karpenter v1.14.0
