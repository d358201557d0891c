"""The Grafana dashboards: `python -m charts.dashboards` writes charts/karpenter/dashboards/."""
