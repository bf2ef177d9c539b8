//! Changes of objects: chosen values for the fields of each kind, and random changes of any field.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::objects::pick;

/// A change of a document.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Sets the value at a JSON pointer, and creates missing parents.
    Set(String, Value),
    /// Removes the value at a JSON pointer.
    Remove(String),
    /// Repeats the last item of the list at a JSON pointer.
    Repeat(String),
}

/// A row: JSON pointer, and values as JSON texts. The text `~` removes the field.
type Row = (&'static str, &'static [&'static str]);

const METADATA: &[Row] = &[
    ("/metadata/labels/app", &["\"web\"", "\"db\"", "\"not valid\"", "\"-\"", "1", "~", "\"\""]),
    (
        "/metadata/labels",
        &["{}", "{\"a b\":\"c\"}", "{\"A/B/C\":\"x\"}", "{\"/x\":\"\"}", "null", "[]", "\"x\""],
    ),
    ("/metadata/annotations", &["{\"a\":\"b\"}", "{\"UPPER/x y\":\"\"}", "{\"a\":1}", "null"]),
    ("/metadata/generation", &["7", "-1", "\"x\""]),
    (
        "/metadata/finalizers",
        &[
            "[\"example.com/f\"]",
            "[\"bare\"]",
            "[\"not valid/x\"]",
            "[]",
            "[\"orphan\",\"foregroundDeletion\"]",
        ],
    ),
    (
        "/metadata/ownerReferences",
        &[
            "[{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"x\",\"uid\":\"u\"}]",
            "[{\"apiVersion\":\"\",\"kind\":\"\",\"name\":\"\",\"uid\":\"\"}]",
            "[{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"x\",\"uid\":\"u\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"y\",\"uid\":\"v\",\"controller\":true}]",
            "[{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"x\",\"uid\":\"u\"}]",
            "[{\"kind\":\"Pod\"}]",
            "{}",
        ],
    ),
    ("/metadata/creationTimestamp", &["\"2020-01-01T00:00:00Z\"", "\"yesterday\"", "null", "5"]),
    ("/metadata/deletionTimestamp", &["\"2020-01-01T00:00:00Z\""]),
    ("/metadata/deletionGracePeriodSeconds", &["3"]),
    ("/metadata/selfLink", &["\"/x\""]),
    (
        "/metadata/managedFields",
        &["[]", "[{}]", "[{\"manager\":\"x\",\"operation\":\"Update\"}]", "[{\"operation\":\"Nope\"}]"],
    ),
    ("/metadata/namespace", &["\"other\"", "\"{ns}\"", "\"\"", "\"Bad_Name\""]),
    ("/metadata", &["{}", "null", "\"x\"", "[]"]),
    ("/status", &["{}", "null", "\"x\"", "{\"replicas\":7,\"phase\":\"Odd\"}"]),
    ("/spec", &["{}", "null", "\"x\"", "[]", "~"]),
];

const POD_SPEC: &[Row] = &[
    ("/containers", &["[]", "null", "{}", "~"]),
    ("/containers/0", &["{}", "null", "\"x\""]),
    (
        "/containers/0/name",
        &[
            "\"\"",
            "\"Main\"",
            "\"a_b\"",
            "\"other\"",
            "~",
            "5",
            "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
        ],
    ),
    ("/containers/0/image", &["\"\"", "\"nginx:1.28\"", "\" x \"", "~", "7"]),
    ("/containers/0/imagePullPolicy", &["\"Never\"", "\"Sometimes\"", "\"\""]),
    (
        "/containers/0/ports",
        &[
            "[{\"containerPort\":80}]",
            "[{\"containerPort\":0}]",
            "[{\"containerPort\":70000}]",
            "[{\"containerPort\":-1,\"protocol\":\"HTTP\"}]",
            "[{\"name\":\"http\",\"containerPort\":80},{\"name\":\"http\",\"containerPort\":81}]",
            "[{\"name\":\"HTTP_port\",\"containerPort\":80}]",
            "[{\"name\":\"this-name-is-too-long\",\"containerPort\":80}]",
            "[{\"containerPort\":80,\"hostPort\":8080}]",
            "[{\"containerPort\":80,\"hostPort\":99999,\"hostIP\":\"x\"}]",
            "[{\"containerPort\":80},{\"containerPort\":80}]",
            "[{\"containerPort\":\"80\"}]",
            "[{\"containerPort\":80,\"hostPort\":80},{\"containerPort\":81,\"hostPort\":80}]",
        ],
    ),
    (
        "/containers/0/env",
        &[
            "[{\"name\":\"\"}]",
            "[{\"name\":\"A=B\",\"value\":\"x\"}]",
            "[{\"name\":\"A\",\"valueFrom\":{}}]",
            "[{\"name\":\"A\",\"value\":\"x\",\"valueFrom\":{\"fieldRef\":{\"fieldPath\":\"metadata.name\"}}}]",
            "[{\"name\":\"A\",\"valueFrom\":{\"fieldRef\":{\"fieldPath\":\"spec.nope\"}}}]",
            "[{\"name\":\"A\",\"valueFrom\":{\"fieldRef\":{\"fieldPath\":\"\"}}}]",
            "[{\"name\":\"A\",\"valueFrom\":{\"fieldRef\":{\"apiVersion\":\"v2\",\"fieldPath\":\"metadata.name\"}}}]",
            "[{\"name\":\"A\",\"valueFrom\":{\"configMapKeyRef\":{\"name\":\"c\",\"key\":\"k\"}}}]",
            "[{\"name\":\"A\",\"valueFrom\":{\"configMapKeyRef\":{\"name\":\"\",\"key\":\"\"}}}]",
            "[{\"name\":\"A\",\"valueFrom\":{\"secretKeyRef\":{\"name\":\"s\",\"key\":\"a b\"}}}]",
            "[{\"name\":\"A\",\"valueFrom\":{\"resourceFieldRef\":{\"resource\":\"limits.cpu\"}}}]",
            "[{\"name\":\"A\",\"valueFrom\":{\"resourceFieldRef\":{\"resource\":\"nope\"}}}]",
            "[{\"name\":\"A\",\"value\":\"1\"},{\"name\":\"A\",\"value\":\"2\"}]",
            "[{\"name\":\"A\",\"value\":5}]",
        ],
    ),
    (
        "/containers/0/envFrom",
        &[
            "[{\"configMapRef\":{\"name\":\"c\"}}]",
            "[{}]",
            "[{\"prefix\":\"a=b\",\"secretRef\":{\"name\":\"\"}}]",
            "[{\"configMapRef\":{\"name\":\"c\"},\"secretRef\":{\"name\":\"s\"}}]",
            "[{\"secretRef\":{\"name\":\"Bad_\"}}]",
        ],
    ),
    (
        "/containers/0/resources",
        &[
            "{}",
            "{\"requests\":{\"cpu\":\"2\"},\"limits\":{\"cpu\":\"1\"}}",
            "{\"requests\":{\"cpu\":\"-1\"}}",
            "{\"requests\":{\"cpu\":\"abc\"}}",
            "{\"limits\":{\"memory\":\"1.5Gi\"}}",
            "{\"limits\":{\"memory\":\"100m\"}}",
            "{\"requests\":{\"unknown\":\"1\"}}",
            "{\"requests\":{\"example.com/gpu\":\"1\"}}",
            "{\"requests\":{\"example.com/gpu\":\"1.5\"},\"limits\":{\"example.com/gpu\":\"2\"}}",
            "{\"limits\":{\"example.com/gpu\":\"2\"}}",
            "{\"limits\":{\"cpu\":1,\"memory\":1000000}}",
            "{\"requests\":{\"hugepages-2Mi\":\"4Mi\"}}",
            "{\"requests\":{\"storage\":\"4Mi\"}}",
            "{\"requests\":{\"ephemeral-storage\":\"4Mi\"}}",
            "{\"requests\":{\"a b\":\"1\"}}",
            "{\"limits\":{\"cpu\":\"\"}}",
            "{\"requests\":{\"cpu\":\"0.0001\"}}",
            "{\"claims\":[{\"name\":\"x\"}]}",
        ],
    ),
    (
        "/containers/0/livenessProbe",
        &[
            "{}",
            "{\"httpGet\":{\"path\":\"/\",\"port\":0}}",
            "{\"httpGet\":{\"path\":\"\",\"port\":80}}",
            "{\"httpGet\":{\"path\":\"/\",\"port\":\"Not Valid\"}}",
            "{\"httpGet\":{\"path\":\"/\",\"port\":80,\"scheme\":\"FTP\"}}",
            "{\"httpGet\":{\"path\":\"/\",\"port\":80},\"tcpSocket\":{\"port\":80}}",
            "{\"tcpSocket\":{\"port\":70000}}",
            "{\"tcpSocket\":{}}",
            "{\"exec\":{}}",
            "{\"grpc\":{\"port\":0}}",
            "{\"tcpSocket\":{\"port\":80},\"periodSeconds\":-1,\"timeoutSeconds\":-2,\"failureThreshold\":-3}",
            "{\"tcpSocket\":{\"port\":80},\"successThreshold\":2}",
            "{\"tcpSocket\":{\"port\":80},\"terminationGracePeriodSeconds\":0}",
            "{\"httpGet\":{\"port\":80,\"httpHeaders\":[{\"name\":\"bad name\",\"value\":\"x\"}]}}",
            "{\"tcpSocket\":{\"port\":80},\"initialDelaySeconds\":-5}",
        ],
    ),
    (
        "/containers/0/readinessProbe",
        &[
            "{\"tcpSocket\":{\"port\":80},\"successThreshold\":2}",
            "{}",
            "{\"exec\":{\"command\":[]}}",
            "{\"tcpSocket\":{\"port\":80},\"terminationGracePeriodSeconds\":3}",
            "{\"httpGet\":{\"port\":\"http\",\"host\":\"x\"}}",
        ],
    ),
    (
        "/containers/0/startupProbe",
        &["{\"exec\":{\"command\":[\"x\"]},\"successThreshold\":3}", "{\"httpGet\":{}}"],
    ),
    (
        "/containers/0/lifecycle",
        &[
            "{\"postStart\":{}}",
            "{\"preStop\":{\"httpGet\":{\"port\":80},\"exec\":{\"command\":[\"x\"]}}}",
            "{\"preStop\":{\"sleep\":{\"seconds\":1}}}",
            "{\"preStop\":{\"sleep\":{\"seconds\":-1}}}",
            "{\"preStop\":{\"sleep\":{\"seconds\":1000}}}",
            "{\"stopSignal\":\"SIGTERM\"}",
        ],
    ),
    (
        "/containers/0/volumeMounts",
        &[
            "[{\"name\":\"data\",\"mountPath\":\"/a\"},{\"name\":\"data\",\"mountPath\":\"/a\"}]",
            "[{\"name\":\"nope\",\"mountPath\":\"/a\"}]",
            "[{\"name\":\"\",\"mountPath\":\"\"}]",
            "[{\"name\":\"data\",\"mountPath\":\"/a\",\"subPath\":\"../x\"}]",
            "[{\"name\":\"data\",\"mountPath\":\"/a\",\"subPath\":\"/x\"}]",
            "[{\"name\":\"data\",\"mountPath\":\"/a\",\"subPath\":\"x\",\"subPathExpr\":\"y\"}]",
            "[{\"name\":\"data\",\"mountPath\":\"a:b\"}]",
            "[{\"name\":\"data\",\"mountPath\":\"/a\",\"mountPropagation\":\"Bidirectional\"}]",
            "[{\"name\":\"data\",\"mountPath\":\"/a\",\"mountPropagation\":\"Odd\"}]",
            "[{\"name\":\"data\",\"mountPath\":\"/a\",\"readOnly\":true,\"recursiveReadOnly\":\"Enabled\"}]",
            "[{\"name\":\"data\",\"mountPath\":\"/a\",\"recursiveReadOnly\":\"Enabled\"}]",
        ],
    ),
    (
        "/containers/0/volumeDevices",
        &["[{\"name\":\"data\",\"devicePath\":\"/dev/x\"}]", "[{\"name\":\"\",\"devicePath\":\"\"}]"],
    ),
    (
        "/containers/0/securityContext",
        &[
            "{\"runAsUser\":-1}",
            "{\"runAsGroup\":-1}",
            "{\"privileged\":true,\"allowPrivilegeEscalation\":false}",
            "{\"capabilities\":{\"add\":[\"SYS_ADMIN\"]},\"allowPrivilegeEscalation\":false}",
            "{\"procMount\":\"Odd\"}",
            "{\"seccompProfile\":{\"type\":\"Localhost\"}}",
            "{\"seccompProfile\":{\"type\":\"Odd\"}}",
            "{\"runAsUser\":\"root\"}",
            "{\"capabilities\":{\"drop\":[\"ALL\"]},\"readOnlyRootFilesystem\":true}",
        ],
    ),
    ("/containers/0/terminationMessagePolicy", &["\"Odd\"", "\"FallbackToLogsOnError\""]),
    ("/containers/0/terminationMessagePath", &["\"\"", "\"/x\""]),
    ("/containers/0/restartPolicy", &["\"Always\"", "\"Odd\""]),
    (
        "/containers/0/resizePolicy",
        &[
            "[{\"resourceName\":\"cpu\",\"restartPolicy\":\"NotRequired\"}]",
            "[{\"resourceName\":\"disk\",\"restartPolicy\":\"Odd\"}]",
        ],
    ),
    ("/containers/0/stdin", &["true", "\"yes\""]),
    ("/containers/0/args", &["[\"a\"]", "\"a\"", "[1]"]),
    ("/containers/0/workingDir", &["\"/x\""]),
    (
        "/initContainers",
        &[
            "[{\"name\":\"main\",\"image\":\"x\"}]",
            "[{\"name\":\"first\",\"image\":\"\"}]",
            "[{\"name\":\"first\",\"image\":\"x\",\"restartPolicy\":\"Always\"}]",
            "[{\"name\":\"first\",\"image\":\"x\",\"readinessProbe\":{\"tcpSocket\":{\"port\":1}}}]",
            "[{\"name\":\"first\",\"image\":\"x\",\"lifecycle\":{\"preStop\":{\"exec\":{\"command\":[\"x\"]}}}}]",
            "[{\"name\":\"first\",\"image\":\"x\",\"restartPolicy\":\"Never\"}]",
            "[]",
            "[{}]",
        ],
    ),
    ("/ephemeralContainers", &["[{\"name\":\"debug\",\"image\":\"x\"}]", "[]"]),
    (
        "/volumes",
        &[
            "[]",
            "[{\"name\":\"data\",\"emptyDir\":{},\"hostPath\":{\"path\":\"/x\"}}]",
            "[{\"name\":\"data\",\"emptyDir\":{}},{\"name\":\"data\",\"emptyDir\":{}}]",
            "[{\"name\":\"\",\"emptyDir\":{}}]",
            "[{\"name\":\"Data\",\"emptyDir\":{}}]",
            "[{\"name\":\"data\",\"configMap\":{}}]",
            "[{\"name\":\"data\",\"configMap\":{\"name\":\"c\",\"defaultMode\":9999}}]",
            "[{\"name\":\"data\",\"configMap\":{\"name\":\"c\",\"items\":[{\"key\":\"\",\"path\":\"../x\"}]}}]",
            "[{\"name\":\"data\",\"secret\":{}}]",
            "[{\"name\":\"data\",\"secret\":{\"secretName\":\"s\",\"items\":[{\"key\":\"k\",\"path\":\"/x\"}]}}]",
            "[{\"name\":\"data\",\"hostPath\":{\"path\":\"\"}}]",
            "[{\"name\":\"data\",\"hostPath\":{\"path\":\"/x/../y\",\"type\":\"Odd\"}}]",
            "[{\"name\":\"data\",\"persistentVolumeClaim\":{\"claimName\":\"\"}}]",
            "[{\"name\":\"data\",\"persistentVolumeClaim\":{\"claimName\":\"c\",\"readOnly\":true}}]",
            "[{\"name\":\"data\",\"emptyDir\":{\"medium\":\"Odd\",\"sizeLimit\":\"-1\"}}]",
            "[{\"name\":\"data\",\"emptyDir\":{\"medium\":\"Memory\",\"sizeLimit\":\"1Gi\"}}]",
            "[{\"name\":\"data\",\"downwardAPI\":{\"items\":[{\"path\":\"labels\",\"fieldRef\":{\"fieldPath\":\"metadata.labels\"}}]}}]",
            "[{\"name\":\"data\",\"downwardAPI\":{\"items\":[{\"path\":\"\"}]}}]",
            "[{\"name\":\"data\",\"projected\":{\"sources\":[{\"serviceAccountToken\":{\"path\":\"t\",\"expirationSeconds\":10}}]}}]",
            "[{\"name\":\"data\",\"projected\":{\"sources\":[{\"configMap\":{\"name\":\"c\"}},{\"secret\":{\"name\":\"s\"}}]}}]",
            "[{\"name\":\"data\",\"nfs\":{\"server\":\"\",\"path\":\"x\"}}]",
            "[{\"name\":\"data\",\"nfs\":{\"server\":\"s\",\"path\":\"/x\"}}]",
            "[{\"name\":\"data\",\"csi\":{\"driver\":\"\"}}]",
            "[{\"name\":\"data\",\"ephemeral\":{}}]",
            "[{\"name\":\"data\",\"gitRepo\":{\"repository\":\"r\"}}]",
        ],
    ),
    ("/restartPolicy", &["\"Always\"", "\"Never\"", "\"OnFailure\"", "\"Sometimes\"", "\"\"", "3"]),
    ("/terminationGracePeriodSeconds", &["0", "-1", "10", "\"x\"", "1.5"]),
    ("/activeDeadlineSeconds", &["0", "-1", "10", "2147483648", "20"]),
    ("/dnsPolicy", &["\"None\"", "\"Default\"", "\"Odd\"", "\"ClusterFirstWithHostNet\""]),
    (
        "/dnsConfig",
        &[
            "{\"nameservers\":[\"1.2.3.4\"]}",
            "{\"nameservers\":[\"x\"]}",
            "{\"searches\":[\"Bad_\",\"ok.example\"],\"options\":[{\"name\":\"\"}]}",
            "{\"nameservers\":[\"1.1.1.1\",\"2.2.2.2\",\"3.3.3.3\",\"4.4.4.4\"]}",
        ],
    ),
    ("/nodeSelector", &["{\"a\":\"b\"}", "{\"a b\":\"c\"}", "{\"a\":\"not valid\"}", "{\"a\":1}"]),
    ("/nodeName", &["\"node-2\"", "\"Bad_Node\"", "\"\""]),
    ("/serviceAccountName", &["\"runner\"", "\"default\""]),
    ("/serviceAccount", &["\"runner\""]),
    ("/automountServiceAccountToken", &["false", "\"no\""]),
    ("/hostNetwork", &["true", "false", "\"x\""]),
    ("/hostPID", &["true"]),
    ("/hostIPC", &["true"]),
    ("/hostUsers", &["false"]),
    ("/shareProcessNamespace", &["true"]),
    ("/hostname", &["\"web-1\"", "\"Bad.Host\""]),
    ("/subdomain", &["\"sub\"", "\"Bad_\""]),
    ("/setHostnameAsFQDN", &["true"]),
    (
        "/securityContext",
        &[
            "{\"runAsUser\":-5}",
            "{\"fsGroup\":-1,\"supplementalGroups\":[-1,5]}",
            "{\"sysctls\":[{\"name\":\"Bad Name\",\"value\":\"x\"}]}",
            "{\"sysctls\":[{\"name\":\"net.core.x\",\"value\":\"1\"},{\"name\":\"net.core.x\",\"value\":\"1\"}]}",
            "{\"fsGroupChangePolicy\":\"Odd\"}",
            "{\"seccompProfile\":{\"type\":\"Unconfined\"}}",
            "{\"supplementalGroupsPolicy\":\"Odd\"}",
            "{\"runAsNonRoot\":true}",
            "{\"windowsOptions\":{\"runAsUserName\":\"\"}}",
        ],
    ),
    ("/imagePullSecrets", &["[{\"name\":\"registry\"}]", "[{\"name\":\"\"}]", "[{}]"]),
    (
        "/affinity",
        &[
            "{}",
            "{\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[]}}}",
            "{\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"In\"}]}]}}}",
            "{\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Gt\",\"values\":[\"x\"]}]}]}}}",
            "{\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Exists\"}]}]}}}",
            "{\"nodeAffinity\":{\"preferredDuringSchedulingIgnoredDuringExecution\":[{\"weight\":0,\"preference\":{}}]}}",
            "{\"podAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":[{\"labelSelector\":{\"matchLabels\":{\"a\":\"b\"}},\"topologyKey\":\"\"}]}}",
            "{\"podAntiAffinity\":{\"preferredDuringSchedulingIgnoredDuringExecution\":[{\"weight\":101,\"podAffinityTerm\":{\"topologyKey\":\"kubernetes.io/hostname\"}}]}}",
            "{\"podAntiAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":[{\"labelSelector\":{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Odd\"}]},\"topologyKey\":\"zone\"}]}}",
        ],
    ),
    (
        "/tolerations",
        &[
            "[{\"key\":\"a\",\"operator\":\"Exists\",\"value\":\"b\"}]",
            "[{\"operator\":\"Equal\",\"value\":\"b\"}]",
            "[{\"key\":\"a\",\"operator\":\"Odd\"}]",
            "[{\"key\":\"a\",\"effect\":\"Odd\"}]",
            "[{\"key\":\"a\",\"tolerationSeconds\":3}]",
            "[{\"key\":\"a b\",\"value\":\"not valid\"}]",
            "[{\"key\":\"a\",\"operator\":\"Exists\",\"effect\":\"NoExecute\",\"tolerationSeconds\":5}]",
            "[{\"key\":\"a\",\"operator\":\"Gt\",\"value\":\"1\"}]",
            "[{\"operator\":\"Exists\"}]",
        ],
    ),
    (
        "/topologySpreadConstraints",
        &[
            "[{\"maxSkew\":1,\"topologyKey\":\"zone\",\"whenUnsatisfiable\":\"DoNotSchedule\"}]",
            "[{\"maxSkew\":0,\"topologyKey\":\"\",\"whenUnsatisfiable\":\"Odd\"}]",
            "[{\"maxSkew\":1,\"topologyKey\":\"zone\",\"whenUnsatisfiable\":\"ScheduleAnyway\",\"minDomains\":0}]",
            "[{\"maxSkew\":1,\"topologyKey\":\"zone\",\"whenUnsatisfiable\":\"DoNotSchedule\"},{\"maxSkew\":2,\"topologyKey\":\"zone\",\"whenUnsatisfiable\":\"DoNotSchedule\"}]",
            "[{\"maxSkew\":1,\"topologyKey\":\"zone\",\"whenUnsatisfiable\":\"DoNotSchedule\",\"matchLabelKeys\":[\"app\"]}]",
            "[{}]",
        ],
    ),
    (
        "/hostAliases",
        &["[{\"ip\":\"1.2.3.4\",\"hostnames\":[\"a\"]}]", "[{\"ip\":\"x\",\"hostnames\":[\"Bad_\"]}]"],
    ),
    ("/readinessGates", &["[{\"conditionType\":\"example.com/x\"}]", "[{\"conditionType\":\"\"}]"]),
    ("/priorityClassName", &["\"nope\"", "\"system-cluster-critical\"", "\"Bad_\""]),
    ("/priority", &["5", "0"]),
    ("/preemptionPolicy", &["\"Never\"", "\"Odd\""]),
    ("/runtimeClassName", &["\"nope\"", "\"Bad_\""]),
    ("/schedulerName", &["\"mine\"", "\"\""]),
    ("/overhead", &["{\"cpu\":\"1\"}"]),
    ("/enableServiceLinks", &["false"]),
    ("/os", &["{\"name\":\"linux\"}", "{\"name\":\"odd\"}", "{\"name\":\"windows\"}"]),
    (
        "/schedulingGates",
        &["[{\"name\":\"a\"}]", "[{\"name\":\"\"}]", "[{\"name\":\"a\"},{\"name\":\"a\"}]", "[]"],
    ),
    ("/resources", &["{\"requests\":{\"cpu\":\"1\"}}"]),
    ("/unknownField", &["1", "{\"x\":1}"]),
];

const TEMPLATE: &[Row] = &[
    (
        "/metadata/labels",
        &[
            "{\"app\":\"web\"}",
            "{\"app\":\"other\"}",
            "{\"a b\":\"c\"}",
            "{}",
            "null",
            "{\"app\":\"web\",\"x\":\"not valid\"}",
        ],
    ),
    ("/metadata/annotations", &["{\"a\":\"b\"}", "{\"a b\":\"c\"}"]),
    ("/metadata/name", &["\"x\"", "\"Bad_Name\""]),
    ("/metadata/finalizers", &["[\"bare\"]"]),
    ("/metadata", &["null", "{}", "~"]),
    ("/spec", &["{}", "null", "~"]),
];

const SELECTOR: &[Row] = &[
    (
        "",
        &[
            "{}",
            "null",
            "~",
            "{\"matchLabels\":{\"app\":\"other\"}}",
            "{\"matchLabels\":{\"a b\":\"c d\"}}",
            "{\"matchLabels\":{}}",
            "\"app=web\"",
        ],
    ),
    ("/matchLabels", &["{\"app\":\"web\",\"x\":\"y\"}", "null", "{\"app\":1}"]),
    (
        "/matchExpressions",
        &[
            "[{\"key\":\"app\",\"operator\":\"In\",\"values\":[\"web\"]}]",
            "[{\"key\":\"app\",\"operator\":\"In\"}]",
            "[{\"key\":\"app\",\"operator\":\"Exists\",\"values\":[\"web\"]}]",
            "[{\"key\":\"app\",\"operator\":\"Is\",\"values\":[\"web\"]}]",
            "[{\"key\":\"a b\",\"operator\":\"NotIn\",\"values\":[\"not valid\"]}]",
            "[{\"key\":\"app\",\"operator\":\"DoesNotExist\"}]",
        ],
    ),
];

const WORKLOAD: &[Row] = &[
    ("/replicas", &["0", "1", "5", "-1", "\"three\"", "1.5", "null", "3000000000"]),
    ("/minReadySeconds", &["0", "10", "-1", "\"x\""]),
    ("/template", &["{}", "null", "~", "\"x\""]),
    ("/selector", &["~", "null"]),
];

const BUDGETS: &[&str] =
    &["0", "1", "\"25%\"", "\"150%\"", "\"x\"", "-1", "\"0%\"", "\"-5%\"", "1.5", "\"5\"", "null"];

const DEPLOYMENT: &[Row] = &[
    (
        "/strategy",
        &[
            "{\"type\":\"Recreate\"}",
            "{\"type\":\"Odd\"}",
            "{\"type\":\"Recreate\",\"rollingUpdate\":{\"maxSurge\":1}}",
            "{\"type\":\"\"}",
            "{}",
            "null",
            "{\"rollingUpdate\":{\"maxSurge\":0,\"maxUnavailable\":0}}",
        ],
    ),
    ("/strategy/type", &["\"Recreate\"", "\"RollingUpdate\""]),
    ("/strategy/rollingUpdate/maxSurge", BUDGETS),
    ("/strategy/rollingUpdate/maxUnavailable", BUDGETS),
    ("/revisionHistoryLimit", &["0", "-1", "5"]),
    ("/progressDeadlineSeconds", &["0", "-1", "5", "700", "2147483647"]),
    ("/paused", &["true", "false", "\"yes\""]),
    ("/rollbackTo", &["{\"revision\":1}"]),
];

const DAEMON_SET: &[Row] = &[
    (
        "/updateStrategy",
        &[
            "{\"type\":\"OnDelete\"}",
            "{\"type\":\"Odd\"}",
            "{}",
            "null",
            "{\"type\":\"RollingUpdate\"}",
            "{\"rollingUpdate\":{\"maxSurge\":0,\"maxUnavailable\":0}}",
        ],
    ),
    ("/updateStrategy/rollingUpdate/maxSurge", BUDGETS),
    ("/updateStrategy/rollingUpdate/maxUnavailable", BUDGETS),
    ("/revisionHistoryLimit", &["0", "-1", "5"]),
    ("/templateGeneration", &["5"]),
];

const STATEFUL_SET: &[Row] = &[
    ("/serviceName", &["\"\"", "\"other\"", "\"Bad_\"", "~"]),
    ("/podManagementPolicy", &["\"Parallel\"", "\"OrderedReady\"", "\"Odd\"", "\"\""]),
    (
        "/updateStrategy",
        &[
            "{\"type\":\"OnDelete\"}",
            "{\"type\":\"Odd\"}",
            "{}",
            "null",
            "{\"type\":\"OnDelete\",\"rollingUpdate\":{\"partition\":1}}",
            "{\"type\":\"\",\"rollingUpdate\":{\"partition\":1}}",
        ],
    ),
    ("/updateStrategy/rollingUpdate/partition", &["0", "-1", "3", "\"x\""]),
    ("/updateStrategy/rollingUpdate/maxUnavailable", BUDGETS),
    ("/revisionHistoryLimit", &["0", "-1", "5"]),
    (
        "/persistentVolumeClaimRetentionPolicy",
        &["{\"whenDeleted\":\"Odd\"}", "{\"whenScaled\":\"Delete\"}", "{}", "null"],
    ),
    ("/ordinals", &["{\"start\":-1}", "{\"start\":1}", "{}", "null"]),
    (
        "/volumeClaimTemplates",
        &[
            "[]",
            "[{}]",
            "[{\"metadata\":{\"name\":\"data\"},\"spec\":{}}]",
            "[{\"metadata\":{\"name\":\"data\"},\"spec\":{\"accessModes\":[\"Odd\"],\"resources\":{\"requests\":{\"storage\":\"-1\"}}}}]",
            "[{\"metadata\":{\"name\":\"more\"},\"spec\":{\"accessModes\":[\"ReadWriteOnce\"],\"resources\":{\"requests\":{\"storage\":\"2Gi\"}}}}]",
        ],
    ),
];

const JOB: &[Row] = &[
    ("/parallelism", &["0", "3", "-1", "\"x\"", "100001"]),
    ("/completions", &["0", "3", "-1", "null", "5", "100001"]),
    ("/completionMode", &["\"Indexed\"", "\"NonIndexed\"", "\"Odd\"", "\"\""]),
    ("/backoffLimit", &["0", "-1", "3"]),
    ("/backoffLimitPerIndex", &["1", "-1"]),
    ("/maxFailedIndexes", &["1", "-1", "1000"]),
    ("/activeDeadlineSeconds", &["0", "-1", "30"]),
    ("/ttlSecondsAfterFinished", &["0", "-1", "30"]),
    ("/suspend", &["true", "false", "\"x\""]),
    ("/manualSelector", &["true", "false"]),
    ("/podReplacementPolicy", &["\"Failed\"", "\"TerminatingOrFailed\"", "\"Odd\""]),
    ("/managedBy", &["\"example.com/me\"", "\"bare\"", "\"kubernetes.io/job-controller\""]),
    (
        "/podFailurePolicy",
        &[
            "{\"rules\":[]}",
            "{\"rules\":[{\"action\":\"FailJob\",\"onExitCodes\":{\"operator\":\"In\",\"values\":[1]}}]}",
            "{\"rules\":[{\"action\":\"Odd\",\"onExitCodes\":{\"operator\":\"Odd\",\"values\":[0]}}]}",
            "{\"rules\":[{\"action\":\"Ignore\",\"onPodConditions\":[{\"type\":\"DisruptionTarget\"}]}]}",
            "{\"rules\":[{\"action\":\"Ignore\"}]}",
            "{\"rules\":[{\"action\":\"FailIndex\",\"onExitCodes\":{\"operator\":\"In\",\"values\":[2,1]}}]}",
            "{\"rules\":[{\"action\":\"Ignore\",\"onExitCodes\":{\"containerName\":\"nope\",\"operator\":\"In\",\"values\":[1,1]},\"onPodConditions\":[{\"type\":\"a b\",\"status\":\"Odd\"}]}]}",
        ],
    ),
    (
        "/successPolicy",
        &[
            "{\"rules\":[{\"succeededCount\":1}]}",
            "{\"rules\":[]}",
            "{\"rules\":[{\"succeededIndexes\":\"0-1\"}]}",
            "{\"rules\":[{}]}",
            "{\"rules\":[{\"succeededIndexes\":\"x\",\"succeededCount\":-1}]}",
        ],
    ),
    ("/template/spec/restartPolicy", &["\"Always\"", "\"Never\"", "\"OnFailure\"", "~", "\"Odd\""]),
    ("/template", &["{}", "null", "~"]),
    (
        "/template/metadata/labels",
        &["{\"job-name\":\"x\"}", "{\"controller-uid\":\"x\"}", "{\"batch.kubernetes.io/job-name\":\"y\"}"],
    ),
    (
        "/selector",
        &[
            "{\"matchLabels\":{\"a\":\"b\"}}",
            "{}",
            "null",
            "{\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"x\"}}",
        ],
    ),
];

const CRON_JOB: &[Row] = &[
    (
        "/spec/schedule",
        &[
            "\"\"",
            "\"* * * *\"",
            "\"60 * * * *\"",
            "\"@daily\"",
            "\"@never\"",
            "\"*/0 * * * *\"",
            "\"TZ=UTC * * * * *\"",
            "\"x\"",
            "~",
            "\"5-1 * * * *\"",
            "\"0 0 31 2 *\"",
            "5",
            "\"CRON_TZ=UTC 0 0 * * *\"",
            "\"@every 5m\"",
            "\"* * * * 8\"",
        ],
    ),
    (
        "/spec/timeZone",
        &[
            "\"UTC\"",
            "\"Nope/Zone\"",
            "\"\"",
            "\"local\"",
            "\"Local\"",
            "\"America/New_York\"",
            "\"europe/berlin\"",
            "\"Europe/Nowhere\"",
            "\"EST\"",
            "\"../x\"",
        ],
    ),
    ("/spec/concurrencyPolicy", &["\"Forbid\"", "\"Replace\"", "\"Odd\"", "\"\""]),
    ("/spec/suspend", &["true", "false"]),
    ("/spec/startingDeadlineSeconds", &["0", "-1", "100"]),
    ("/spec/successfulJobsHistoryLimit", &["0", "-1", "5"]),
    ("/spec/failedJobsHistoryLimit", &["0", "-1", "5"]),
    ("/spec/jobTemplate", &["{}", "null", "~", "{\"spec\":{}}"]),
    ("/spec/jobTemplate/metadata/labels", &["{\"a\":\"b\"}", "{\"a b\":\"c\"}"]),
];

const SERVICE: &[Row] = &[
    (
        "/spec/type",
        &["\"ClusterIP\"", "\"NodePort\"", "\"LoadBalancer\"", "\"ExternalName\"", "\"Odd\"", "\"\""],
    ),
    (
        "/spec/clusterIP",
        &[
            "\"None\"",
            "\"\"",
            "\"10.96.77.{seed}\"",
            "\"192.168.1.1\"",
            "\"x\"",
            "\"fd00::1\"",
            "\"10.96.78.{seed}\"",
        ],
    ),
    (
        "/spec/clusterIPs",
        &[
            "[\"None\"]",
            "[]",
            "[\"10.96.79.{seed}\"]",
            "[\"10.96.79.{seed}\",\"10.96.79.{seed}\"]",
            "[\"x\"]",
            "null",
        ],
    ),
    ("/spec/externalName", &["\"example.com\"", "\"Bad_\"", "\"\"", "\"example.com.\""]),
    (
        "/spec/ports",
        &[
            "[]",
            "null",
            "[{\"port\":0}]",
            "[{\"port\":70000}]",
            "[{\"port\":80},{\"port\":81}]",
            "[{\"name\":\"a\",\"port\":80},{\"name\":\"a\",\"port\":81}]",
            "[{\"name\":\"a\",\"port\":80},{\"name\":\"b\",\"port\":80}]",
            "[{\"name\":\"a\",\"port\":80},{\"name\":\"b\",\"port\":80,\"protocol\":\"UDP\"}]",
            "[{\"name\":\"Bad_\",\"port\":80}]",
            "[{\"port\":80,\"protocol\":\"HTTP\"}]",
            "[{\"port\":80,\"targetPort\":\"Not Valid\"}]",
            "[{\"port\":80,\"targetPort\":0}]",
            "[{\"port\":80,\"targetPort\":70000}]",
            "[{\"port\":80,\"targetPort\":\"http-alt\"}]",
            "[{\"port\":80,\"nodePort\":22}]",
            "[{\"port\":80,\"nodePort\":-1}]",
            "[{\"port\":80,\"appProtocol\":\"http\"}]",
            "[{\"port\":80,\"appProtocol\":\"a b\"}]",
            "[{\"port\":\"80\"}]",
            "[{\"name\":\"toolongtoolongtoolong\",\"port\":80}]",
            "[{}]",
        ],
    ),
    ("/spec/selector", &["{\"app\":\"db\"}", "{\"a b\":\"c\"}", "{\"a\":\"not valid\"}", "null", "{}"]),
    ("/spec/sessionAffinity", &["\"ClientIP\"", "\"None\"", "\"Odd\"", "\"\""]),
    (
        "/spec/sessionAffinityConfig",
        &[
            "{\"clientIP\":{\"timeoutSeconds\":0}}",
            "{\"clientIP\":{\"timeoutSeconds\":100}}",
            "{\"clientIP\":{\"timeoutSeconds\":90000}}",
            "{}",
        ],
    ),
    ("/spec/externalIPs", &["[\"1.2.3.4\"]", "[\"x\"]", "[\"127.0.0.1\"]", "[\"0.0.0.0\"]"]),
    ("/spec/loadBalancerIP", &["\"1.2.3.4\""]),
    ("/spec/loadBalancerSourceRanges", &["[\"10.0.0.0/8\"]", "[\"x\"]"]),
    ("/spec/loadBalancerClass", &["\"example.com/x\"", "\"Bad Class\""]),
    ("/spec/externalTrafficPolicy", &["\"Local\"", "\"Cluster\"", "\"Odd\""]),
    ("/spec/internalTrafficPolicy", &["\"Local\"", "\"Cluster\"", "\"Odd\""]),
    ("/spec/healthCheckNodePort", &["-1", "5"]),
    ("/spec/allocateLoadBalancerNodePorts", &["true", "false"]),
    ("/spec/ipFamilies", &["[\"IPv4\"]", "[\"IPv6\"]", "[\"IPv5\"]", "[\"IPv4\",\"IPv4\"]"]),
    ("/spec/ipFamilyPolicy", &["\"SingleStack\"", "\"RequireDualStack\"", "\"PreferDualStack\"", "\"Odd\""]),
    ("/spec/publishNotReadyAddresses", &["true"]),
    ("/spec/trafficDistribution", &["\"PreferClose\"", "\"Odd\""]),
];

const ENDPOINTS: &[Row] = &[
    ("/subsets", &["[]", "null", "[{}]", "[{\"addresses\":[]}]", "{}", "[{\"ports\":[{\"port\":1}]}]"]),
    (
        "/subsets/0/addresses",
        &[
            "[]",
            "[{\"ip\":\"\"}]",
            "[{\"ip\":\"x\"}]",
            "[{\"ip\":\"127.0.0.1\"}]",
            "[{\"ip\":\"0.0.0.0\"}]",
            "[{\"ip\":\"169.254.1.1\"}]",
            "[{\"ip\":\"224.0.0.1\"}]",
            "[{\"ip\":\"10.0.0.1\",\"hostname\":\"Bad_\"}]",
            "[{\"ip\":\"10.0.0.2\",\"hostname\":\"a\",\"nodeName\":\"Bad_\"}]",
            "[{\"ip\":\"fd00::1\"},{\"ip\":\"10.0.0.3\"}]",
            "[{\"ip\":\"10.0.0.5\",\"targetRef\":{\"kind\":\"Pod\",\"name\":\"x\"}}]",
            "[{\"ip\":\"10.0.0.4\"},{\"ip\":\"10.0.0.4\"}]",
            "[{\"ip\":\"010.0.0.4\"}]",
            "[{}]",
        ],
    ),
    ("/subsets/0/notReadyAddresses", &["[{\"ip\":\"x\"}]", "[{\"ip\":\"10.0.0.9\"}]"]),
    (
        "/subsets/0/ports",
        &[
            "[]",
            "[{\"port\":0}]",
            "[{\"port\":70000,\"protocol\":\"HTTP\"}]",
            "[{\"port\":80},{\"port\":81}]",
            "[{\"name\":\"a\",\"port\":80},{\"name\":\"a\",\"port\":80}]",
            "[{\"name\":\"Bad_\",\"port\":80}]",
            "[{\"port\":80,\"appProtocol\":\"a b\"}]",
            "[{\"port\":\"x\"}]",
            "[{\"port\":53,\"protocol\":\"UDP\"}]",
        ],
    ),
];

const SLICE: &[Row] = &[
    ("/addressType", &["\"IPv6\"", "\"FQDN\"", "\"Odd\"", "~", "\"\""]),
    (
        "/endpoints",
        &[
            "[]",
            "null",
            "~",
            "[{}]",
            "[{\"addresses\":[]}]",
            "[{\"addresses\":[\"x\"]}]",
            "[{\"addresses\":[\"fd00::1\"]}]",
            "[{\"addresses\":[\"127.0.0.1\"]}]",
            "[{\"addresses\":[\"0.0.0.0\"]}]",
            "[{\"addresses\":[\"169.254.0.1\"]}]",
            "[{\"addresses\":[\"10.0.0.1\"],\"hostname\":\"Bad_\"}]",
            "[{\"addresses\":[\"10.0.0.1\"],\"nodeName\":\"Bad_\"}]",
            "[{\"addresses\":[\"10.0.0.1\"],\"hints\":{\"forZones\":[{\"name\":\"\"}]}}]",
            "[{\"addresses\":[\"10.0.0.1\"],\"hints\":{\"forZones\":[{\"name\":\"a\"},{\"name\":\"a\"}]}}]",
            "[{\"addresses\":[\"10.0.0.1\",\"10.0.0.1\"]}]",
            "[{\"addresses\":[\"10.0.0.1\"],\"deprecatedTopology\":{\"a\":\"b\"}}]",
            "[{\"addresses\":[\"10.0.0.1\"],\"zone\":\"a\",\"targetRef\":{\"kind\":\"Pod\"}}]",
            "[{\"addresses\":[\"example.com\"]}]",
        ],
    ),
    (
        "/ports",
        &[
            "[]",
            "null",
            "[{\"port\":80},{\"port\":81}]",
            "[{\"name\":\"Bad_\",\"port\":80}]",
            "[{\"name\":\"a\",\"port\":0}]",
            "[{\"name\":\"a\",\"port\":70000}]",
            "[{\"name\":\"a\",\"protocol\":\"Odd\"}]",
            "[{\"name\":\"a\",\"port\":1,\"appProtocol\":\"a b\"}]",
            "[{}]",
            "[{\"name\":\"\",\"port\":80}]",
        ],
    ),
];

const CONFIG_MAP: &[Row] = &[
    (
        "/data",
        &[
            "null",
            "{}",
            "{\"a b\":\"x\"}",
            "{\"..\":\"x\"}",
            "{\"\":\"x\"}",
            "{\"key\":1}",
            "{\"key\":null}",
            "\"x\"",
            "{\"more\":\"x\"}",
            "{\"raw\":\"x\"}",
        ],
    ),
    ("/data/key", &["\"changed\"", "null", "~"]),
    (
        "/binaryData",
        &[
            "{\"raw\":\"AAEC\"}",
            "{\"raw\":\"not base64!\"}",
            "{\"key\":\"AAEC\"}",
            "{\"a b\":\"\"}",
            "{\"raw\":1}",
        ],
    ),
    ("/immutable", &["true", "false", "\"x\""]),
];

const SECRET: &[Row] = &[
    (
        "/type",
        &[
            "\"Opaque\"",
            "\"kubernetes.io/tls\"",
            "\"kubernetes.io/basic-auth\"",
            "\"kubernetes.io/ssh-auth\"",
            "\"kubernetes.io/dockercfg\"",
            "\"kubernetes.io/dockerconfigjson\"",
            "\"kubernetes.io/service-account-token\"",
            "\"custom\"",
            "\"\"",
        ],
    ),
    (
        "/data",
        &[
            "null",
            "{}",
            "{\"a b\":\"AAEC\"}",
            "{\"key\":\"not base64!\"}",
            "{\"key\":1}",
            "{\"tls.crt\":\"AAEC\"}",
            "{\".dockercfg\":\"e30=\"}",
            "{\".dockerconfigjson\":\"AAEC\"}",
            "{\"ssh-privatekey\":\"AAEC\"}",
            "{\"ssh-privatekey\":\"\"}",
        ],
    ),
    ("/stringData", &["{\"key\":\"text\"}", "{\"a b\":\"x\"}", "{\"key\":1}", "{}"]),
    ("/immutable", &["true", "false"]),
];

const SERVICE_ACCOUNT: &[Row] = &[
    ("/secrets", &["[{\"name\":\"a\"}]", "[]", "[{\"name\":\"\"}]", "\"x\""]),
    ("/imagePullSecrets", &["[{\"name\":\"a\"}]", "[{\"name\":\"a\"},{\"name\":\"a\"}]"]),
    ("/automountServiceAccountToken", &["true", "null", "\"x\""]),
];

const EVENT: &[Row] = &[
    ("/involvedObject", &["{}", "{\"namespace\":\"other\"}", "~", "{\"kind\":\"Node\",\"name\":\"n\"}"]),
    ("/involvedObject/namespace", &["\"other\"", "\"{ns}\"", "\"\""]),
    ("/type", &["\"Warning\"", "\"Odd\"", "\"\""]),
    ("/count", &["2", "-1", "\"x\""]),
    ("/eventTime", &["\"2020-01-02T03:04:05.000001Z\"", "\"x\"", "null"]),
    ("/firstTimestamp", &["\"2020-02-02T03:04:05Z\"", "\"x\""]),
    ("/reportingComponent", &["\"\"", "\"a b\"", "\"example.com/c\""]),
    ("/reportingInstance", &["\"\"", "\"x\""]),
    ("/action", &["\"\"", "\"Act\""]),
    ("/reason", &["\"\"", "\"Other\""]),
    ("/message", &["\"changed\"", "5"]),
    ("/series", &["{\"count\":2,\"lastObservedTime\":\"2020-01-02T03:04:05.000000Z\"}", "{}"]),
    ("/related", &["{\"kind\":\"Pod\",\"name\":\"x\"}"]),
];

const LEASE: &[Row] = &[
    ("/spec/leaseDurationSeconds", &["0", "-1", "30", "\"x\"", "null"]),
    ("/spec/leaseTransitions", &["-1", "3", "0"]),
    ("/spec/holderIdentity", &["\"other\"", "\"\"", "null", "5"]),
    (
        "/spec/renewTime",
        &["\"2020-01-02T03:04:06.654321Z\"", "\"x\"", "\"2020-01-02T03:04:06Z\"", "null", "5"],
    ),
    ("/spec/acquireTime", &["\"2020-01-02T03:04:06.1Z\""]),
    ("/spec/strategy", &["\"OldestEmulationVersion\"", "\"Odd\"", "\"example.com/s\"", "\"\""]),
    ("/spec/preferredHolder", &["\"x\"", "\"\""]),
];

const NAMESPACE: &[Row] = &[
    ("/spec/finalizers", &["[\"kubernetes\"]", "[]", "[\"bare\"]", "[\"example.com/f\"]"]),
    (
        "/metadata/labels",
        &[
            "{\"kubernetes.io/metadata.name\":\"other\"}",
            "{\"pod-security.kubernetes.io/enforce\":\"privileged\"}",
        ],
    ),
];

const NODE: &[Row] = &[
    (
        "/spec/taints",
        &[
            "[{\"key\":\"a\"}]",
            "[{\"key\":\"a b\",\"value\":\"not valid\",\"effect\":\"Odd\"}]",
            "[{\"key\":\"a\",\"effect\":\"NoExecute\"},{\"key\":\"a\",\"effect\":\"NoExecute\"}]",
            "[{\"effect\":\"NoSchedule\"}]",
            "[]",
            "[{\"key\":\"z\",\"effect\":\"NoExecute\"}]",
        ],
    ),
    ("/spec/unschedulable", &["true", "false", "\"x\""]),
    ("/spec/podCIDR", &["\"10.1.0.0/24\"", "\"x\""]),
    ("/spec/podCIDRs", &["[\"10.1.0.0/24\"]", "[\"x\"]", "[\"10.1.0.0/24\",\"10.2.0.0/24\"]"]),
    ("/spec/providerID", &["\"a://b\"", "\"a://c\""]),
    ("/spec/externalID", &["\"x\""]),
    ("/status/capacity", &["{\"cpu\":\"x\"}", "{\"cpu\":\"-1\"}", "{\"cpu\":\"8\"}", "{\"a b\":\"1\"}"]),
    (
        "/status/addresses",
        &[
            "[{\"type\":\"InternalIP\",\"address\":\"10.0.0.1\"}]",
            "[{\"type\":\"InternalIP\",\"address\":\"10.0.0.1\"},{\"type\":\"InternalIP\",\"address\":\"10.0.0.1\"}]",
        ],
    ),
];

const CLAIM: &[Row] = &[
    (
        "/spec/accessModes",
        &[
            "[]",
            "[\"Odd\"]",
            "[\"ReadWriteOncePod\",\"ReadWriteOnce\"]",
            "[\"ReadWriteOnce\"]",
            "null",
            "\"x\"",
        ],
    ),
    (
        "/spec/resources",
        &[
            "{}",
            "{\"requests\":{\"storage\":\"0\"}}",
            "{\"requests\":{\"storage\":\"-1Gi\"}}",
            "{\"requests\":{\"storage\":\"x\"}}",
            "{\"requests\":{\"cpu\":\"1\"}}",
            "{\"requests\":{\"storage\":\"5Gi\"}}",
            "{\"requests\":{\"storage\":\"1Gi\"},\"limits\":{\"storage\":\"500Mi\"}}",
        ],
    ),
    ("/spec/storageClassName", &["\"slow\"", "\"\"", "\"Bad_\"", "null"]),
    ("/spec/volumeMode", &["\"Block\"", "\"Odd\"", "\"\""]),
    ("/spec/volumeName", &["\"v\"", "\"\""]),
    (
        "/spec/selector",
        &[
            "{\"matchLabels\":{\"a b\":\"c\"}}",
            "{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Is\"}]}",
        ],
    ),
    (
        "/spec/dataSource",
        &[
            "{\"kind\":\"PersistentVolumeClaim\",\"name\":\"x\"}",
            "{\"kind\":\"\",\"name\":\"\"}",
            "{\"apiGroup\":\"snapshot.storage.k8s.io\",\"kind\":\"VolumeSnapshot\",\"name\":\"x\"}",
            "{\"apiGroup\":\"\",\"kind\":\"Odd\",\"name\":\"x\"}",
        ],
    ),
    ("/spec/dataSourceRef", &["{\"kind\":\"PersistentVolumeClaim\",\"name\":\"x\"}"]),
    ("/spec/volumeAttributesClassName", &["\"gold\"", "\"\""]),
];

const BUDGET: &[Row] = &[
    ("/spec/minAvailable", BUDGETS),
    ("/spec/maxUnavailable", BUDGETS),
    ("/spec/unhealthyPodEvictionPolicy", &["\"IfHealthyBudget\"", "\"Odd\"", "\"\""]),
];

const REVISION: &[Row] = &[
    ("/revision", &["0", "-1", "7", "\"x\"", "~"]),
    ("/data", &["{\"changed\":true}", "null", "\"x\"", "5", "[]", "~", "{}"]),
];

/// Returns the tables for a kind, each with the prefix of its pointers.
fn tables(kind: &str) -> Vec<(&'static str, &'static [Row])> {
    let workload = |own: &'static [Row]| {
        vec![
            ("/spec", WORKLOAD),
            ("/spec", own),
            ("/spec/selector", SELECTOR),
            ("/spec/template", TEMPLATE),
            ("/spec/template/spec", POD_SPEC),
        ]
    };
    match kind {
        "Pod" => vec![("/spec", POD_SPEC), ("/spec", POD_SPEC)],
        "Service" => vec![("", SERVICE)],
        "Endpoints" => vec![("", ENDPOINTS)],
        "ConfigMap" => vec![("", CONFIG_MAP)],
        "Secret" => vec![("", SECRET)],
        "ServiceAccount" => vec![("", SERVICE_ACCOUNT)],
        "Event" => vec![("", EVENT)],
        "Lease" => vec![("", LEASE)],
        "Namespace" => vec![("", NAMESPACE)],
        "Node" => vec![("", NODE)],
        "Deployment" => workload(DEPLOYMENT),
        "DaemonSet" => workload(DAEMON_SET),
        "StatefulSet" => workload(STATEFUL_SET),
        "ReplicaSet" => workload(&[]),
        "ReplicationController" => vec![
            ("/spec", WORKLOAD),
            ("/spec/template", TEMPLATE),
            ("/spec/template/spec", POD_SPEC),
            ("/spec", &[("/selector", &["{\"app\":\"other\"}", "{}", "{\"a b\":\"c\"}", "null"])]),
        ],
        "Job" => vec![
            ("/spec", JOB),
            ("/spec", JOB),
            ("/spec/template", TEMPLATE),
            ("/spec/template/spec", POD_SPEC),
        ],
        "CronJob" => vec![
            ("", CRON_JOB),
            ("", CRON_JOB),
            ("/spec/jobTemplate/spec", JOB),
            ("/spec/jobTemplate/spec/template/spec", POD_SPEC),
        ],
        "PersistentVolumeClaim" => vec![("", CLAIM)],
        "PodDisruptionBudget" => vec![("", BUDGET), ("/spec/selector", SELECTOR)],
        "ControllerRevision" => vec![("", REVISION)],
        "EndpointSlice" => vec![("", SLICE)],
        _ => Vec::new(),
    }
}

const CONDITIONS: &str =
    "[{\"type\":\"Ready\",\"status\":\"True\",\"lastTransitionTime\":\"2020-01-02T03:04:05Z\"}]";

/// Values of status fields, for all kinds.
const STATUS: &[Row] = &[
    ("/status/replicas", &["1", "3", "0", "-1", "\"x\""]),
    ("/status/readyReplicas", &["1", "3", "-1"]),
    ("/status/availableReplicas", &["1", "3", "-1"]),
    ("/status/observedGeneration", &["1", "-1"]),
    (
        "/status/conditions",
        &[
            "[]",
            CONDITIONS,
            "[{\"type\":\"\",\"status\":\"Odd\"}]",
            "null",
            "[{\"type\":\"Complete\",\"status\":\"True\"}]",
            "[{\"type\":\"Failed\",\"status\":\"True\"}]",
        ],
    ),
    (
        "/status/phase",
        &["\"Running\"", "\"Succeeded\"", "\"Odd\"", "\"Active\"", "\"Bound\"", "\"Terminating\""],
    ),
    ("/status/active", &["1", "-1", "0"]),
    ("/status/succeeded", &["1", "-1", "0"]),
    ("/status/startTime", &["\"2020-01-02T03:04:05Z\""]),
    ("/status/completionTime", &["\"2020-01-02T03:04:06Z\""]),
    ("/status/lastScheduleTime", &["\"2020-01-02T03:04:06Z\""]),
    ("/status/disruptionsAllowed", &["1", "-1"]),
    ("/status/expectedPods", &["1", "-1"]),
    ("/status/currentNumberScheduled", &["1", "-1"]),
    ("/status/numberReady", &["1", "-1"]),
    ("/status/podIP", &["\"10.0.0.1\"", "\"x\""]),
    ("/status/podIPs", &["[{\"ip\":\"10.0.0.1\"}]", "[{\"ip\":\"x\"}]"]),
    ("/status/hostIP", &["\"10.0.0.2\""]),
    ("/status/reason", &["\"Why\""]),
    (
        "/status/containerStatuses",
        &[
            "[{\"name\":\"main\",\"ready\":true,\"restartCount\":0,\"image\":\"x\",\"imageID\":\"\",\"state\":{\"running\":{\"startedAt\":\"2020-01-02T03:04:05Z\"}}}]",
        ],
    ),
    (
        "/status/loadBalancer",
        &[
            "{\"ingress\":[{\"ip\":\"1.2.3.4\"}]}",
            "{\"ingress\":[{\"ip\":\"x\"}]}",
            "{\"ingress\":[{\"hostname\":\"a.example\"}]}",
        ],
    ),
    ("/status/capacity", &["{\"cpu\":\"4\"}", "{\"storage\":\"1Gi\"}"]),
    ("/status/accessModes", &["[\"ReadWriteOnce\"]"]),
    ("/status/nodeInfo/kubeletVersion", &["\"v1\""]),
    ("/spec/replicas", &["9"]),
    ("/spec", &["{}"]),
    ("/metadata/labels", &["{\"changed\":\"yes\"}"]),
    ("/metadata/annotations", &["{\"changed\":\"yes\"}"]),
    ("/status", &["{}", "null"]),
];

/// Values of the status of a Job.
const JOB_STATUS: &[Row] = &[
    (
        "/status/conditions",
        &[
            "[]",
            "[{\"type\":\"Complete\",\"status\":\"True\"}]",
            "[{\"type\":\"Complete\",\"status\":\"True\"},{\"type\":\"SuccessCriteriaMet\",\"status\":\"True\"}]",
            "[{\"type\":\"SuccessCriteriaMet\",\"status\":\"True\"}]",
            "[{\"type\":\"Failed\",\"status\":\"True\"}]",
            "[{\"type\":\"Failed\",\"status\":\"True\"},{\"type\":\"FailureTarget\",\"status\":\"True\"}]",
            "[{\"type\":\"FailureTarget\",\"status\":\"True\"}]",
            "[{\"type\":\"Complete\",\"status\":\"True\"},{\"type\":\"Failed\",\"status\":\"True\"}]",
            "[{\"type\":\"Complete\",\"status\":\"True\"},{\"type\":\"FailureTarget\",\"status\":\"True\"},{\"type\":\"SuccessCriteriaMet\",\"status\":\"True\"}]",
            "[{\"type\":\"SuccessCriteriaMet\",\"status\":\"True\"},{\"type\":\"Failed\",\"status\":\"True\"},{\"type\":\"FailureTarget\",\"status\":\"True\"}]",
            "[{\"type\":\"Suspended\",\"status\":\"True\"}]",
            "[{\"type\":\"Suspended\",\"status\":\"False\"}]",
            "[{\"type\":\"Suspended\",\"status\":\"False\"},{\"type\":\"Complete\",\"status\":\"False\"}]",
        ],
    ),
    ("/status/active", &["0", "1", "2", "~"]),
    ("/status/ready", &["0", "1", "3", "-1", "~"]),
    ("/status/terminating", &["0", "1", "-1", "~"]),
    ("/status/succeeded", &["0", "1", "2", "-1", "~"]),
    ("/status/failed", &["0", "1", "2", "~"]),
    (
        "/status/startTime",
        &["\"2020-01-02T03:04:05Z\"", "\"2020-01-02T03:04:07Z\"", "\"2020-01-02T04:04:05+01:00\"", "~"],
    ),
    (
        "/status/completionTime",
        &["\"2020-01-02T03:04:06Z\"", "\"2020-01-02T03:04:05Z\"", "\"2020-01-02T03:04:09Z\"", "~"],
    ),
    (
        "/status/completedIndexes",
        &[
            "\"0\"",
            "\"0-1\"",
            "\"0,2\"",
            "\"2,1\"",
            "\"1-0\"",
            "\"x\"",
            "\"0-1-2\"",
            "\"7\"",
            "\"\"",
            "\"0-1,1\"",
            "~",
        ],
    ),
    (
        "/status/failedIndexes",
        &["\"0\"", "\"1\"", "\"1-2\"", "\"2,1\"", "\"x\"", "\"7\"", "\"\"", "\"0-9\"", "~"],
    ),
    (
        "/status/uncountedTerminatedPods",
        &[
            "{}",
            "{\"succeeded\":[\"u-1\"]}",
            "{\"failed\":[\"u-1\",\"u-2\"]}",
            "{\"succeeded\":[\"u-1\"],\"failed\":[\"u-1\"]}",
            "{\"succeeded\":[\"\",\"u-1\",\"u-1\"]}",
            "~",
        ],
    ),
];

/// Values that decide which rules apply to the status of a Job.
const JOB_COUNTS: &[Row] = &[
    ("/spec/completions", &["0", "3", "5"]),
    ("/spec/parallelism", &["3", "5", "1"]),
    ("/spec/completionMode", &["\"Indexed\"", "\"NonIndexed\""]),
    ("/spec/backoffLimitPerIndex", &["1"]),
    ("/spec/suspend", &["true", "false"]),
    ("/spec/successPolicy", &["{\"rules\":[{\"succeededCount\":1}]}"]),
];

fn from_rows(rng: &mut Rng, prefix: &str, rows: &[Row]) -> Edit {
    let (pointer, values) = pick(rng, rows);
    let pointer = format!("{prefix}{pointer}");
    match pick(rng, values) {
        "~" => Edit::Remove(pointer),
        text => Edit::Set(pointer, serde_json::from_str(text).unwrap_or_else(|_| json!(text))),
    }
}

/// Returns a change of an object of this kind, valid or not.
pub fn edit(rng: &mut Rng, kind: &str, object: &Value) -> Edit {
    match rng.u8(..12) {
        0 | 1 => from_rows(rng, "", METADATA),
        2 | 3 => random(rng, object),
        _ => {
            let tables = tables(kind);
            match tables.get(rng.usize(..tables.len().max(1))) {
                Some((prefix, rows)) if !rows.is_empty() => from_rows(rng, prefix, rows),
                _ => from_rows(rng, "", METADATA),
            }
        }
    }
}

/// Returns a change of a status.
pub fn status_edit(rng: &mut Rng) -> Edit {
    from_rows(rng, "", STATUS)
}

/// Returns a change of the status of a Job.
pub fn job_status_edit(rng: &mut Rng) -> Edit {
    from_rows(rng, "", JOB_STATUS)
}

/// Returns a change of the counts of a Job.
pub fn job_count_edit(rng: &mut Rng) -> Edit {
    from_rows(rng, "", JOB_COUNTS)
}

/// Returns a change of a random field.
fn random(rng: &mut Rng, object: &Value) -> Edit {
    let mut pointers = Vec::new();
    collect(object, String::new(), &mut pointers);
    if pointers.is_empty() {
        return Edit::Set("/extra".to_owned(), json!(1));
    }
    let (pointer, value) = &pointers[rng.usize(..pointers.len())];
    match rng.u8(..10) {
        0 | 1 => Edit::Remove(pointer.clone()),
        2 => Edit::Set(pointer.clone(), Value::Null),
        3 if value.is_array() => Edit::Repeat(pointer.clone()),
        3..=5 if value.is_object() => Edit::Set(format!("{pointer}/unknown"), json!("x")),
        _ => {
            let value = match value {
                Value::String(_) => pick(rng, &["5", "\"\"", "{}", "true", "\"Not Valid\"", "[]"]),
                Value::Number(_) => pick(rng, &["-1", "\"5\"", "0", "1.5", "99999999999", "true"]),
                Value::Bool(_) => pick(rng, &["\"true\"", "0", "false", "true"]),
                Value::Array(_) => pick(rng, &["{}", "\"x\"", "[]", "[null]", "[5]"]),
                _ => pick(rng, &["[]", "\"x\"", "{}", "5"]),
            };
            Edit::Set(pointer.clone(), serde_json::from_str(value).unwrap_or_default())
        }
    }
}

fn collect<'a>(value: &'a Value, pointer: String, into: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(field, format!("{pointer}/{name}"), into);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, format!("{pointer}/{index}"), into);
            }
        }
        _ => {}
    }
    if !pointer.is_empty() {
        into.push((pointer, value));
    }
}

impl Edit {
    /// Changes a document.
    pub fn apply(&self, document: &mut Value) {
        match self {
            Edit::Set(pointer, value) => {
                if let Some(slot) = slot(document, pointer) {
                    *slot = value.clone();
                }
            }
            Edit::Remove(pointer) => remove(document, pointer),
            Edit::Repeat(pointer) => {
                if let Some(Value::Array(items)) = document.pointer_mut(pointer)
                    && let Some(last) = items.last().cloned()
                {
                    items.push(last);
                }
            }
        }
    }

    /// Returns the change as a merge patch.
    pub fn merge_patch(&self) -> Value {
        let (pointer, value) = match self {
            Edit::Set(pointer, value) => (pointer, value.clone()),
            Edit::Remove(pointer) | Edit::Repeat(pointer) => (pointer, Value::Null),
        };
        let parts: Vec<_> = pointer.split('/').skip(1).collect();
        parts.iter().rev().fold(value, |value, part| match part.parse::<usize>() {
            Ok(_) => json!([value]),
            Err(_) => json!({ part.replace("~1", "/").replace("~0", "~"): value }),
        })
    }

    /// Returns the change as operations of a JSON patch.
    pub fn operations(&self, rng: &mut Rng) -> Vec<Value> {
        match self {
            Edit::Set(path, value) => {
                vec![json!({ "op": pick(rng, &["add", "replace"]), "path": path, "value": value })]
            }
            Edit::Remove(path) => vec![json!({ "op": "remove", "path": path })],
            Edit::Repeat(path) => {
                vec![json!({ "op": "copy", "from": format!("{path}/0"), "path": format!("{path}/-") })]
            }
        }
    }
}

fn slot<'a>(document: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    let mut place = document;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        place = match place {
            Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?)?,
            other => {
                if !other.is_object() {
                    *other = Value::Object(Map::new());
                }
                other.as_object_mut()?.entry(part).or_insert(Value::Null)
            }
        };
    }
    Some(place)
}

fn remove(document: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    let last = last.replace("~1", "/").replace("~0", "~");
    match document.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(&last);
        }
        Some(Value::Array(items)) => {
            if let Some(index) = last.parse::<usize>().ok().filter(|index| *index < items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}
