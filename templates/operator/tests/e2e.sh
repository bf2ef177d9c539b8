#!/bin/sh
# Uses the installed operator as a user does. Needs kubectl and a cluster for tests, in which the chart is installed.
set -eu
cd "$(dirname "$0")/.."

# API servers and nodes need seconds to notice the webhook of ready Pods.
attempts=30
until kubectl apply -f example.yaml; do
  attempts=$((attempts - 1))
  [ "$attempts" -gt 0 ] || exit 1
  sleep 1
done
kubectl wait site/blog --for=condition=Ready --timeout=120s
# Columns: condition and replicas.
kubectl get site blog --no-headers | grep -q '^blog *True *2 '

# The webhook denies an invalid change.
if denial="$(kubectl patch site blog --type=merge --patch='{"spec": {"replicas": 1000}}' 2>&1)"; then
  echo "an invalid Site is accepted" >&2
  exit 1
fi
case "$denial" in
  *"spec.replicas: must be between 0 and 100"*) ;;
  *)
    echo "$denial" >&2
    exit 1
    ;;
esac

# The controller reconciles a change.
kubectl patch site blog --type=merge --patch='{"spec": {"replicas": 1}}'
kubectl wait site/blog --for=jsonpath='{.status.readyReplicas}'=1 --timeout=120s

# The controller removes its finalizer.
kubectl delete site blog --timeout=120s
