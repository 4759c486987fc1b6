"""The source of truth: which file of a repository decides a field of an object, and the change to that file.

Plain manifests; kustomize overlays, whose images, replicas, patches and generators come before the base; Helm charts, as far as a field
is one value of `values.yaml`. Where two places are possible, or a change would reach another environment, it refuses and says why. Pure:
`manifest` does the editing, `clients.repository` brings the files and takes the change. To be read in this order: `proposing` is the
story, `locating` asks who decides; `repository` reads the files, `tables` what is in them, `place` is the answer. `kustomize` goes along
`layers` and asks `images` and `patches`; `helm` reads templates and asks `chart_values`. `diff` prints the result.
"""
