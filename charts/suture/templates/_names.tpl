{{/* Names, labels, and what every pod has in common. */}}

{{- define "suture.name" -}}
{{- if contains "suture" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-suture" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "suture.selector" -}}
app.kubernetes.io/name: suture
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "suture.labels" -}}
{{ include "suture.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: suture
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "suture.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{- define "suture.databaseSecret" -}}
{{- if .Values.postgres.trial.enabled }}{{ include "suture.name" . }}-trial-postgres{{ else }}{{ required "database.existingSecret names the Secret with the address of Postgres; or set postgres.trial.enabled=true to try Suture out" .Values.database.existingSecret }}{{ end }}
{{- end }}

{{- define "suture.databaseKey" -}}
{{- if .Values.postgres.trial.enabled }}url{{ else }}{{ .Values.database.key }}{{ end }}
{{- end }}

{{/* The pod's side of "restricted" (Pod Security Standards). */}}
{{- define "suture.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "suture.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Environment of every process. Secrets are never in it: files are mounted and named. */}}
{{- define "suture.environment" -}}
- { name: SUTURE_DATABASE_URL_FILE, value: /etc/suture/database/url }
{{- if and .Values.database.directKey (not .Values.postgres.trial.enabled) }}
- { name: SUTURE_DATABASE_DIRECT_FILE, value: /etc/suture/database/direct }
{{- end }}
- { name: SUTURE_DATABASE_POOL, value: {{ .Values.database.pool | quote }} }
- { name: SUTURE_WORKFLOWS_MODULES, value: {{ join "," .Values.workflows.modules | quote }} }
- { name: SUTURE_LOG_LEVEL, value: {{ .Values.log.level }} }
- { name: SUTURE_LOG_FORMAT, value: {{ .Values.log.format }} }
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "suture.mounts" -}}
- { name: database, mountPath: /etc/suture/database, readOnly: true }
- { name: tmp, mountPath: /tmp }
{{- end }}

{{- define "suture.volumes" -}}
- name: database
  secret:
    secretName: {{ include "suture.databaseSecret" . }}
    defaultMode: 0440
    items:
      - { key: {{ include "suture.databaseKey" . }}, path: url }
      {{- if and .Values.database.directKey (not .Values.postgres.trial.enabled) }}
      - { key: {{ .Values.database.directKey }}, path: direct }
      {{- end }}
- name: tmp
  emptyDir: {}
{{- end }}

{{/* One mounted key of a Secret that the reader of the values named. */}}
{{- define "suture.secretVolume" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - { key: {{ .key }}, path: {{ .name }} }
{{- end }}

{{- define "suture.placement" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Replicas apart from each other, as far as there are nodes: ScheduleAnyway, or a small cluster could not roll out. */}}
{{- define "suture.spread" -}}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "suture.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}

{{- define "suture.podMetadata" -}}
labels:
  {{- include "suture.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
