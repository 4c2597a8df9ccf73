"""The use cases of each subject, put together from ports and values; `assemble` joins them."""
