"""The journal: results of a run, written to disk after every case, so that an interrupted run can be resumed."""
