"""What every room uses: errors, settings, the bucket's layout, AWS clients, events, logs, metrics, prices."""
