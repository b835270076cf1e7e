"""Protobuf: message types from descriptors or Python modules, plain values from messages and
back."""
