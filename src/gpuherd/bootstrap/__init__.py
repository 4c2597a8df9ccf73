"""The one place that names concrete classes and puts them together."""
