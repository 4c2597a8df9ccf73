"""The meter: how spans of cost come from what lists and looks show."""
