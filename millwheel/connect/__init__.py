"""Where records come from and go to: sources, sinks, other systems, formats, lookups, plug-ins."""
