"""``/metrics``: figures as Prometheus text, served by every process and gathered by the driver."""
