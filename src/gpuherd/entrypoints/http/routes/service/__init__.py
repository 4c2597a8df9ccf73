"""The service itself: health, metrics, caches."""
