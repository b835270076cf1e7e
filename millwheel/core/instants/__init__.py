"""Times and decimals as others write them; inside, whole numbers of a unit. Pure."""
