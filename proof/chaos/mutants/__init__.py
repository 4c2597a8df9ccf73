"""Take away one guard at a time, and see whether anybody notices."""
