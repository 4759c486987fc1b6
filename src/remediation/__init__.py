"""The domain: a failing workload becomes evidence, a diagnosis, a proposal, a person's decision, and one pull request."""
