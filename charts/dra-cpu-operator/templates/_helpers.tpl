{{/* Names are fixed, not made from the release's: the chart is installed once per cluster. */}}
{{- define "dra-cpu.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "dra-cpu.selector" . }}
{{- end }}

{{- define "dra-cpu.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The image as the runtime is asked for it; without a registry in front unless values name one. */}}
{{- define "dra-cpu.agent.image" -}}
{{ .Values.agent.image.repository }}:{{ .Values.agent.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "dra-cpu.operator.image" -}}
{{ .Values.operator.image.repository }}:{{ .Values.operator.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Who an agent is to the API server. */}}
{{- define "dra-cpu.agent.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:dracpu-agent
{{- end }}

{{/* What the pods of the operator's image have in common: where they may run, and as whom. */}}
{{- define "dra-cpu.operator.pod" -}}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.operator.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* Likewise for their containers. */}}
{{- define "dra-cpu.operator.container" -}}
image: {{ include "dra-cpu.operator.image" . }}
imagePullPolicy: {{ .Values.operator.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
  privileged: false
  readOnlyRootFilesystem: true
terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{/* What makes a manifest a hook that leaves nothing behind; a Job that failed stays, for its log. */}}
{{- define "dra-cpu.hook" -}}
helm.sh/hook: {{ .events }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
