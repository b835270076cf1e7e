"""Records of callbacks that wait: for the order of their times, or for the timers before them."""
