{{/* Object names do not contain the release's name, because the chart is installed once per cluster. */}}
{{- define "dra-cpu.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "dra-cpu.selector" . }}
{{- end }}

{{/* The name is not the chart's, which differs in a parent chart with an alias: the operator finds its agents by it. */}}
{{- define "dra-cpu.selector" -}}
app.kubernetes.io/name: dra-cpu-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The labels of the pods of a component, "agent" or "operator", with those of its value podLabels. They have no version,
so that a new chart with the same component does not restart its pods. */}}
{{- define "dra-cpu.podLabels" -}}
{{- $own := set (include "dra-cpu.selector" .root | fromYaml) "app.kubernetes.io/component" .component }}
{{- $added := (index .root.Values .component).podLabels | default dict }}
{{- range $name, $_ := $added }}
{{- if hasKey $own $name }}
{{- fail (printf "%s.podLabels: remove the label %s: the chart sets it, and finds its pods by it" $.component $name) }}
{{- end }}
{{- end }}
{{- merge $own $added | toYaml }}
{{- end }}

{{/* The image reference; it has a registry only when the value contains one. */}}
{{- define "dra-cpu.agent.image" -}}
{{ .Values.agent.image.repository }}:{{ .Values.agent.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "dra-cpu.operator.image" -}}
{{ .Values.operator.image.repository }}:{{ .Values.operator.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* "true" when the agents serve the driver dra.memory, too; empty when they do not. Values of an older chart, which
`helm upgrade --reuse-values` keeps, have no agent.memory. */}}
{{- define "dra-cpu.agent.memory" -}}
{{- if ((.Values.agent).memory).enabled }}true{{ end }}
{{- end }}

{{/* "true" when the agents may also make hugepages, and give them back. */}}
{{- define "dra-cpu.agent.provision" -}}
{{- if and (include "dra-cpu.agent.memory" .) ((.Values.agent).memory).provision }}true{{ end }}
{{- end }}

{{/* Where the agent has its own mount of the files about the NUMA nodes, for the same reasons as that of the cgroup
tree. */}}
{{- define "dra-cpu.agent.nodes" -}}
/host/sys/devices/system/node
{{- end }}

{{/* Where the agent has its own mount of the node's cgroup tree. Below /sys, the default AppArmor profile of runtimes
refuses writes, and a container sees only its own cgroup there. */}}
{{- define "dra-cpu.agent.cgroups" -}}
/host/sys/fs/cgroup
{{- end }}

{{/* The drivers that the agents serve, as a JSON list. Roles and policies restrict agents to the devices of these. */}}
{{- define "dra-cpu.agent.drivers" -}}
["dra.cpu"{{ if include "dra-cpu.agent.memory" . }}, "dra.memory"{{ end }}]
{{- end }}

{{/* The same list in CEL, for expressions in double or no quotes. */}}
{{- define "dra-cpu.agent.driversInCel" -}}
{{ include "dra-cpu.agent.drivers" . | replace "\"" "'" }}
{{- end }}

{{/* The user name that the API server gives to agents. */}}
{{- define "dra-cpu.agent.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:dracpu-agent
{{- end }}

{{/* The part of the pod spec that the operator and the chart's Jobs share: where they run and as which user. */}}
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

{{/* The part of the container spec that the operator and the chart's Jobs share. */}}
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

{{/* Annotations of a hook. Helm deletes hooks that succeeded; a failed Job stays, so that its log can be read. */}}
{{- define "dra-cpu.hook" -}}
helm.sh/hook: {{ .events }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
