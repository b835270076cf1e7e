"""The embedded coordinator: members, election and range tables of a run on one machine, without
ZooKeeper."""
