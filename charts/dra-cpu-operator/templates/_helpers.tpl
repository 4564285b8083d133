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

{{/* Who an agent is to the API server. */}}
{{- define "dra-cpu.agent.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:dracpu-agent
{{- end }}
