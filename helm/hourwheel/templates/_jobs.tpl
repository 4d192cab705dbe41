{{/*
A CronJob on Spark, in one pod. Of a dictionary with root, name, schedule, args, and where it is so:
isSuspended, isClient (it calls nodes instead of reading their files).
*/}}
{{- define "hourwheel.job" -}}
{{- $root := .root -}}
{{- $jobs := $root.Values.jobs -}}
{{- $fullname := include "hourwheel.fullname" $root -}}
{{- $component := ternary "client" "job" (default false .isClient) -}}
{{- $labelled := dict "root" $root "component" $component -}}
{{- $isOfNode := not (or .isClient $jobs.source.existingClaim) -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ $fullname }}-{{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "hourwheel.labelsOf" $labelled | nindent 4 }}
spec:
  schedule: {{ .schedule | quote }}
  {{- with $jobs.timeZone }}
  timeZone: {{ . }}
  {{- end }}
  suspend: {{ default false .isSuspended }}
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: {{ int $jobs.historyLimit }}
  failedJobsHistoryLimit: {{ int $jobs.historyLimit }}
  jobTemplate:
    spec:
      # The same logs give the same answer: nothing is tried again.
      backoffLimit: 0
      template:
        metadata:
          labels:
            {{- include "hourwheel.podLabels" $labelled | nindent 12 }}
        spec:
          restartPolicy: Never
          {{- include "hourwheel.podSecurity" $root | nindent 10 }}
          {{- if $isOfNode }}
          # A volume that one machine may mount: the job goes to the machine of the node.
          affinity:
            podAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                - topologyKey: kubernetes.io/hostname
                  labelSelector:
                    matchLabels:
                      statefulset.kubernetes.io/pod-name: {{ $fullname }}-{{ int $jobs.source.ordinal }}
          {{- end }}
          {{- with $root.Values.tolerations }}
          tolerations:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          containers:
            - name: {{ .name }}
              image: {{ include "hourwheel.image" (dict "image" $jobs.image "root" $root) }}
              imagePullPolicy: {{ $jobs.image.pullPolicy }}
              env:
                - name: JOB_NAME
                  valueFrom:
                    fieldRef:
                      fieldPath: metadata.labels['batch.kubernetes.io/job-name']
                - {name: HOME, value: /tmp}
              args:
                {{- range .args }}
                - {{ . | quote }}
                {{- end }}
                - "--cores={{ int $jobs.cores }}"
                - "--memory={{ $jobs.javaMemory }}"
                - "--json"
              resources:
                {{- toYaml $jobs.resources | nindent 16 }}
              {{- include "hourwheel.containerSecurity" $root | nindent 14 }}
              volumeMounts:
                {{- if .isClient }}
                - {name: rows, mountPath: /rows, readOnly: true}
                {{- else }}
                - {name: source, mountPath: /source, readOnly: true}
                {{- end }}
                - {name: output, mountPath: /output}
                - {name: scratch, mountPath: /tmp}
          volumes:
            {{- if .isClient }}
            - name: rows
              persistentVolumeClaim:
                claimName: {{ $jobs.bulkSchedule.existingClaim }}
            {{- else }}
            - name: source
              {{- $own := printf "data-%s-%d" $fullname (int $jobs.source.ordinal) }}
              persistentVolumeClaim:
                claimName: {{ default $own $jobs.source.existingClaim }}
            {{- end }}
            - name: output
              persistentVolumeClaim:
                claimName: {{ default (printf "%s-output" $fullname) $jobs.output.existingClaim }}
            - name: scratch
              emptyDir: {sizeLimit: {{ $jobs.scratchSize }}}
{{- end -}}

{{/* Where a job reads: a node's own directory, or a folder above copies. */}}
{{- define "hourwheel.jobSource" -}}
{{ ternary "/source" "/source/data" (not (empty .Values.jobs.source.existingClaim)) }}
{{- end -}}
