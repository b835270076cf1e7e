"""Child processes: started, kept alive, ended with their parent."""
