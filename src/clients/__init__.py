"""The outside services, one file each: the verbs that we use of each, and its errors translated to ours. They know no engine."""
