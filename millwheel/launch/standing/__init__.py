"""The state of a run, including anything stuck and its cause, collected from its processes for
``millwheel status`` and the page."""
