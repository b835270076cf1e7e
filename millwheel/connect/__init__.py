"""The inputs and outputs of a pipeline: sources, sinks, systems, formats, lookups, plug-ins."""
