//! Controllers with their own ServiceAccounts, with a service that stores accounts, tokens and users of tokens.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use windlass_object::Verb;

use super::*;
use crate::{
    ClientError, DeclaredVerbs, Identities, IdentityCause, IdentityError, MissingPermission, RequestError,
    error::find, missing_permission, one_line,
};

/// The state of the server.
#[derive(Default)]
struct Book {
    /// Existing accounts by name. All are in `kube-system`, which exists unless the test removes it.
    accounts: BTreeSet<String>,
    no_namespace: bool,
    /// Whether every token is rejected.
    takes_none: bool,
    /// Accepted tokens, with their account.
    tokens: Vec<(String, String)>,
    issued: usize,
    /// Lifetime of tokens, in seconds.
    lifetime: i64,
    /// Response to token requests, instead of a token.
    instead: Option<Instead>,
    /// The users of tokens.
    used: Vec<String>,
}

#[derive(Copy, Clone)]
enum Instead {
    Status(u16, &'static str),
    Answer(&'static str),
    Silence,
}

const GONE: &str = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404,"message":"no such thing","details":{"kind":"KIND"}}"#;
const TAKEN: &str =
    r#"{"kind":"Status","status":"Failure","reason":"AlreadyExists","code":409,"message":"there is one"}"#;
const UNAUTHORIZED: &str =
    r#"{"kind":"Status","status":"Failure","reason":"Unauthorized","code":401,"message":"Unauthorized"}"#;
const BUSY: &str =
    r#"{"kind":"Status","status":"Failure","reason":"InternalError","code":500,"message":"out of order"}"#;

type Shelf = Arc<Mutex<Book>>;

impl Book {
    fn new() -> Shelf {
        Arc::new(Mutex::new(Self { lifetime: 3600, ..Self::default() }))
    }

    fn serve(&mut self, seen: &Seen) -> Reply {
        let path = seen.uri.path().trim_start_matches("/prefix").to_owned();
        let Some(rest) = path.strip_prefix("/api/v1/namespaces/kube-system/serviceaccounts") else {
            return self.answer(seen);
        };
        match rest.strip_prefix('/').map(|rest| rest.trim_end_matches("/token")) {
            None => self.make(),
            Some(name) => self.issue(name),
        }
    }

    fn make(&mut self) -> Reply {
        if self.no_namespace {
            return reply(404, GONE.replace("KIND", "namespaces"));
        }
        // The body is not parsed: a test has at most one account that can be missing.
        if self.accounts.insert("one".into()) { reply(201, "{}") } else { reply(409, TAKEN) }
    }

    fn issue(&mut self, name: &str) -> Reply {
        match self.instead {
            Some(Instead::Status(code, body)) => return reply(code, body),
            Some(Instead::Answer(body)) => return reply(201, body),
            Some(Instead::Silence) => return futures_util::future::pending().boxed(),
            None => {}
        }
        if !self.accounts.contains(name) {
            return reply(404, GONE.replace("KIND", "serviceaccounts"));
        }
        self.issued += 1;
        let token = format!("s3cr3t-{}", self.issued);
        self.tokens.push((token.clone(), name.into()));
        let lifetime = self.lifetime;
        reply(201, format!(r#"{{"spec":{{"expirationSeconds":{lifetime}}},"status":{{"token":"{token}"}}}}"#))
    }

    fn answer(&mut self, seen: &Seen) -> Reply {
        let Some(header) = seen.headers.get("authorization") else {
            self.used.push("the process".into());
            return reply(200, CREATED);
        };
        let token = header.to_str().unwrap().trim_start_matches("Bearer ").to_owned();
        match self.tokens.iter().find(|(known, _)| *known == token) {
            Some((_, account)) if !self.takes_none => {
                self.used.push(format!("{account} with {token}"));
                reply(200, CREATED)
            }
            _ => reply(401, UNAUTHORIZED),
        }
    }
}

fn options() -> ClientOptions {
    ClientOptions { identities: Identities::service_accounts(), ..ClientOptions::default() }
}

fn world(shelf: &Shelf) -> World {
    fenced_world(shelf, |_| Arc::new(OpenFence))
}

fn fenced_world(shelf: &Shelf, fence: impl FnOnce(&Env) -> Arc<dyn Fence>) -> World {
    let shelf = Arc::clone(shelf);
    World::with(options(), fence, move |seen| shelf.lock().unwrap().serve(seen))
}

/// Returns a world in which one controller, `one`, has a ServiceAccount.
fn world_of_one() -> (World, Shelf, kube::Client) {
    let shelf = Book::new();
    shelf.lock().unwrap().accounts.insert("one".into());
    let world = world(&shelf);
    let client = world.clients.for_controller("one").unwrap().client();
    (world, shelf, client)
}

impl World {
    /// Returns the number of requests whose path has this suffix.
    fn count(&self, end: &str) -> usize {
        self.seen().iter().filter(|seen| seen.uri.path().ends_with(end)).count()
    }

    fn tokens(&self) -> usize {
        self.count("/token")
    }
}

async fn get(client: &kube::Client) -> Result<ConfigMap, kube::Error> {
    config_maps(client.clone()).get("a").await
}

fn cause(error: &kube::Error) -> IdentityCause {
    find::<IdentityError>(error).unwrap_or_else(|| panic!("{error:?}")).cause.clone()
}

// parity: controller-client-builder, dynamic-controller-client-builder
#[tokio::test(start_paused = true)]
async fn controllers_use_own_service_accounts_and_others_the_process() {
    let shelf = Book::new();
    shelf.lock().unwrap().accounts.extend(["one".into(), "two".into()]);
    let world = world(&shelf);
    for name in ["one", "two", "one"] {
        get(&world.clients.for_controller(name).unwrap().client()).await.unwrap();
    }
    get(&world.clients.for_election().unwrap()).await.unwrap();
    get(&world.clients.for_health()).await.unwrap();
    let informers = world.clients.for_informers().unwrap();
    let kind = windlass_object::ResourceKind::of::<ConfigMap>();
    informers.list(&kind, None, &crate::ListQuery::default()).await.unwrap_err();
    let process = "the process";
    let used = ["one with s3cr3t-1", "two with s3cr3t-2", "one with s3cr3t-1", process, process, process];
    assert_eq!(shelf.lock().unwrap().used, used);
    assert_eq!(world.tokens(), 2, "one token each, until it expires");
    let text = world.metrics.encode();
    assert!(text.contains(r#"identity="service-accounts""#), "{text}");
}

// parity: account-read-before-each
#[tokio::test(start_paused = true)]
async fn missing_account_is_created_and_a_concurrent_create_is_accepted() {
    let shelf = Book::new();
    let world = world(&shelf);
    get(&world.clients.for_controller("one").unwrap().client()).await.unwrap();
    assert_eq!((world.tokens(), world.count("/serviceaccounts")), (2, 1));

    // The account is missing for the token request, and exists when it is created.
    let shelf = Book::new();
    let other = Arc::clone(&shelf);
    let raced = World::with(
        options(),
        |_| Arc::new(OpenFence),
        move |seen| {
            let answer = other.lock().unwrap().serve(seen);
            other.lock().unwrap().accounts.insert("one".into());
            answer
        },
    );
    get(&raced.clients.for_controller("one").unwrap().client()).await.unwrap();
    assert_eq!((raced.tokens(), raced.count("/serviceaccounts")), (2, 1));
}

// parity: namespace-missing
#[tokio::test(start_paused = true)]
async fn missing_namespace_is_an_error_and_is_not_created() {
    let shelf = Book::new();
    shelf.lock().unwrap().no_namespace = true;
    let world = world(&shelf);
    let error = get(&world.clients.for_controller("one").unwrap().client()).await.unwrap_err();
    assert_eq!(cause(&error), IdentityCause::NoNamespace("kube-system".into()));
    let message = one_line(&error);
    let expected = "cannot act as system:serviceaccount:kube-system:one: there is no namespace \"kube-system\": create it";
    assert!(message.contains(expected), "{message}");
    assert_eq!((world.count("/configmaps/a"), world.count("/namespaces")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn missing_permission_of_the_process_is_reported_with_the_rule() {
    let (_, shelf, client) = world_of_one();
    let refusal = r#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"serviceaccounts \"one\" is forbidden: User \"me\" cannot create resource \"serviceaccounts/token\" in API group \"\" in the namespace \"kube-system\""}"#;
    shelf.lock().unwrap().instead = Some(Instead::Status(403, refusal));
    let error = get(&client).await.unwrap_err();
    let message = one_line(&error);
    let rule = r#"me cannot create serviceaccounts/token in namespace kube-system; add to a role there, or to a cluster role: - { apiGroups: [""], resources: ["serviceaccounts/token"], verbs: [create] }"#;
    assert!(message.ends_with(rule), "{message}");
    let Some(MissingPermission { user, verb, .. }) = missing_permission(&error) else { panic!("{error:?}") };
    assert_eq!((user.as_deref(), verb), (Some("me"), Verb::Create));
}

// parity: hour-renewed-80-left
#[tokio::test(start_paused = true)]
async fn token_is_renewed_after_70_to_80_percent_of_its_lifetime() {
    let (world, _, client) = world_of_one();
    let mut renewals = Vec::new();
    let mut last = seconds(0);
    for _ in 0..1200 {
        get(&client).await.unwrap();
        let now = world.env.now().since_origin();
        if world.tokens() > renewals.len() + 1 {
            renewals.push(now - last);
            last = now;
        }
        world.env.sleep(seconds(60)).await;
    }
    assert!(renewals.len() >= 24, "{renewals:?}");
    let window = seconds(3600 * 70 / 100)..=seconds(3600 * 80 / 100 + 60);
    assert!(renewals.iter().all(|after| window.contains(after)), "{renewals:?}");
    let distinct: BTreeSet<_> = renewals.iter().collect();
    assert!(distinct.len() > 3, "renewals are randomized: {renewals:?}");
}

// parity: hour-renewed-80-left
#[tokio::test(start_paused = true)]
async fn token_lifetime_is_the_granted_one() {
    let (world, shelf, client) = world_of_one();
    shelf.lock().unwrap().lifetime = 600;
    get(&client).await.unwrap();
    world.env.sleep(seconds(600 * 70 / 100 - 1)).await;
    get(&client).await.unwrap();
    assert_eq!(world.tokens(), 1);
    world.env.sleep(seconds(62)).await;
    get(&client).await.unwrap();
    assert_eq!(world.tokens(), 2);
}

// parity: caching-token-source
#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_token_request() {
    let (world, _, client) = world_of_one();
    let answers = join_all((0..50).map(|_| get(&client))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(world.tokens(), 1);
    // Requests that find the token due for renewal share a token request as well.
    world.env.sleep(seconds(3000)).await;
    let answers = join_all((0..50).map(|_| get(&client))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(world.tokens(), 2);
}

// parity: caching-token-source
#[tokio::test(start_paused = true)]
async fn requests_use_the_old_token_while_another_renews_it() {
    let (world, shelf, client) = world_of_one();
    get(&client).await.unwrap();
    world.env.sleep(seconds(3000)).await;
    shelf.lock().unwrap().instead = Some(Instead::Silence);
    let answers = join_all((0..5).map(|_| async {
        get(&client).await.unwrap();
        world.env.now().since_origin()
    }));
    let mut ended = answers.await;
    ended.sort();
    assert_eq!(ended, [seconds(3000), seconds(3000), seconds(3000), seconds(3000), seconds(3010)]);
    assert_eq!(world.tokens(), 2);
}

// parity: renewal-fails-keeps-old
#[tokio::test(start_paused = true)]
async fn failed_renewal_is_retried_while_the_old_token_is_valid() {
    let (world, shelf, client) = world_of_one();
    get(&client).await.unwrap();
    shelf.lock().unwrap().instead = Some(Instead::Status(500, BUSY));
    while world.env.now().since_origin() < seconds(3599) {
        get(&client).await.unwrap();
        world.env.sleep(seconds(1)).await;
    }
    let tries = world.tokens() - 1;
    // Between 720 and 1080 s are left, and attempts are 10 to 15 s apart at the maximum delay.
    assert!((720 / 15..=1080 / 10 + 6).contains(&tries), "{tries}");
    assert!(shelf.lock().unwrap().used.iter().all(|used| used == "one with s3cr3t-1"));
    world.env.sleep(seconds(2)).await;
    let error = get(&client).await.unwrap_err();
    assert!(matches!(cause(&error), IdentityCause::Refused { code: 500, .. }), "{error:?}");
    shelf.lock().unwrap().instead = None;
    get(&client).await.unwrap();
    assert_eq!(shelf.lock().unwrap().used.last().unwrap(), "one with s3cr3t-2");
}

// parity: four-tries-within-request
#[tokio::test(start_paused = true)]
async fn requests_that_waited_for_a_token_share_its_failure() {
    let (world, shelf, client) = world_of_one();
    shelf.lock().unwrap().instead = Some(Instead::Status(500, BUSY));
    let answers = join_all((0..20).map(|_| get(&client))).await;
    assert!(answers.iter().all(Result::is_err));
    // The first request made its own attempt; of the others, one makes an attempt for all.
    assert_eq!(world.tokens(), 2);
    assert!(world.env.now().since_origin() <= Duration::from_millis(750));
    for _ in 0..20 {
        get(&client).await.unwrap_err();
    }
    let passed = world.env.now().since_origin();
    assert_eq!(world.tokens(), 22);
    // Delays of 0.5, 1, 2, 4 and 8 s, then 10 s each, plus up to 50 %.
    assert!((seconds(175)..=seconds(264)).contains(&passed), "{passed:?}");
    let waits: Vec<_> = world.arrivals().windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        waits.iter().all(|wait| *wait <= 15_000),
        "no request waits longer than its time limit: {waits:?}"
    );
}

// parity: reset-token-older-than
#[tokio::test(start_paused = true)]
async fn rejected_token_is_replaced_and_request_repeated_once() {
    let (world, shelf, client) = world_of_one();
    get(&client).await.unwrap();
    world.env.sleep(seconds(60)).await;
    shelf.lock().unwrap().tokens.clear();
    let answers = join_all((0..10).map(|_| create(&client))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(world.tokens(), 2, "all requests share one new token");
    let retried = r#"rest_client_request_retries_total{code="401""#;
    assert!(world.metrics.encode().contains(retried), "{}", world.metrics.encode());
}

// parity: reset-token-older-than
#[tokio::test(start_paused = true)]
async fn server_that_rejects_all_tokens_is_not_asked_per_request() {
    let (world, shelf, client) = world_of_one();
    shelf.lock().unwrap().takes_none = true;
    for _ in 0..600 {
        let error = get(&client).await.unwrap_err();
        assert!(matches!(RequestError::from(error), RequestError::Api(status) if status.code == 401));
        world.env.sleep(seconds(1)).await;
    }
    assert!(world.tokens() <= 61, "{}", world.tokens());
    shelf.lock().unwrap().takes_none = false;
    get(&client).await.unwrap();
}

// parity: account-read-before-each
#[tokio::test(start_paused = true)]
async fn deleted_service_account_is_created_again() {
    let (world, shelf, client) = world_of_one();
    get(&client).await.unwrap();
    world.env.sleep(seconds(60)).await;
    {
        let mut book = shelf.lock().unwrap();
        book.accounts.clear();
        book.tokens.clear();
    }
    create(&client).await.unwrap();
    assert!(shelf.lock().unwrap().accounts.contains("one"));
    assert_eq!((world.tokens(), world.count("/serviceaccounts")), (3, 1));
}

// parity: answer-empty-token-used
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_a_valid_token() {
    for answer in [
        "",
        "{}",
        r#"{"spec":{"expirationSeconds":3600},"status":{"token":""}}"#,
        r#"{"spec":{"expirationSeconds":3600},"status":{"token":"s3cr3t\r\nimpersonate-user: a"}}"#,
        r#"{"spec":{},"status":{"token":"s3cr3t"}}"#,
        r#"{"spec":{"expirationSeconds":"s3cr3t"},"status":{"token":"s3cr3t"}}"#,
    ] {
        let (world, shelf, client) = world_of_one();
        shelf.lock().unwrap().instead = Some(Instead::Answer(answer));
        let error = create(&client).await.unwrap_err();
        assert_eq!(cause(&error), IdentityCause::NoToken, "{answer}");
        assert!(!format!("{error:?} {}", one_line(&error)).contains("s3cr3t"), "{error:?}");
        assert_eq!(world.count("/configmaps"), 0);
        let line = r#"code="<identity>",identity="one",resource="configmaps",verb="create"} 1"#;
        assert!(world.metrics.encode().contains(line), "{}", world.metrics.encode());
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_account_name_is_rejected_when_client_is_created() {
    let world = world(&Book::new());
    for name in ["", "Upper", "a/b", "a b", "../secrets", "-a", "a..b", &"a".repeat(254)] {
        let error = world.clients.for_controller(name).unwrap_err();
        assert!(matches!(error, ClientError::AccountName(_)), "{name:?} {error}");
    }
    for namespace in ["", "Upper", "a.b", "a/b"] {
        let identities = Identities::ServiceAccounts { namespace: namespace.into() };
        let service = service_fn(|_: Request<Body>| reply(200, CREATED).map(Ok::<_, BoxError>));
        let (env, uri) = (Env::virtual_time(1), Uri::from_static("http://api.test"));
        let options = ClientOptions { identities, ..ClientOptions::default() };
        let error = Clients::from_service(env, service, uri, options, &Metrics::new(), Arc::new(OpenFence))
            .unwrap_err();
        assert!(matches!(error, ClientError::AccountNamespace(_)), "{namespace:?} {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn standby_gets_tokens_and_does_not_send_writes() {
    let shelf = Book::new();
    let fence = TestFence::new(FenceState::Closed);
    let world = fenced_world(&shelf, |_| Arc::clone(&fence) as Arc<dyn Fence>);
    let client = world.clients.for_controller("one").unwrap().client();
    get(&client).await.unwrap();
    assert_eq!((world.tokens(), world.count("/serviceaccounts")), (2, 1), "a standby creates its account");
    assert!(crate::refusal(&create(&client).await.unwrap_err()).is_some());
}

#[tokio::test(start_paused = true)]
async fn request_that_waited_for_a_token_is_checked_by_the_fence() {
    let shelf = Book::new();
    shelf.lock().unwrap().accounts.insert("one".into());
    let fence = TestFence::new(FenceState::Open);
    let world = {
        let (shelf, fence) = (Arc::clone(&shelf), Arc::clone(&fence));
        let closing = Arc::clone(&fence);
        World::with(
            options(),
            |_| fence,
            move |seen| {
                // Leadership is lost while the token request is in flight.
                if seen.uri.path().ends_with("/token") {
                    closing.state.set(FenceState::Closed);
                }
                shelf.lock().unwrap().serve(seen)
            },
        )
    };
    let log = Arc::<TestLog>::default();
    let clients = world.clients.for_controller("one").unwrap();
    let worker = clients.worker(Arc::clone(&log) as Arc<dyn WriteLog>, None);
    assert!(crate::refusal(&create(&worker).await.unwrap_err()).is_some());
    assert_eq!(world.count("/configmaps"), 0);
    assert!(log.is_empty(), "a write that waited for its token was not sent");
}

#[tokio::test(start_paused = true)]
async fn token_requests_use_no_budget_and_need_no_declaration() {
    #[derive(Debug)]
    struct Creates;
    impl DeclaredVerbs for Creates {
        fn permits(&self, verb: Verb, _: &str, resource: &str) -> bool {
            verb == Verb::Create && resource == "configmaps"
        }
    }
    let shelf = Book::new();
    let options = ClientOptions { qps: 0.001, burst: 1, ..options() };
    let serving = Arc::clone(&shelf);
    let world =
        World::with(options, |_| Arc::new(OpenFence), move |seen| serving.lock().unwrap().serve(seen));
    let log = Arc::<TestLog>::default();
    let clients = world.clients.for_controller("one").unwrap();
    let worker = clients.worker(Arc::clone(&log) as Arc<dyn WriteLog>, Some(Arc::new(Creates)));
    create(&worker).await.unwrap();
    assert_eq!(world.env.now().since_origin(), seconds(0));
    assert_eq!(log.wrote().len(), 1, "requests for accounts and tokens are not logged for the worker");
}

#[tokio::test(start_paused = true)]
async fn draining_process_does_not_wait_for_tokens() {
    let (world, shelf, _) = world_of_one();
    shelf.lock().unwrap().instead = Some(Instead::Silence);
    let clients = world.clients.for_controller("one").unwrap();
    let worker = clients.worker(Arc::<TestLog>::default(), None);
    let mut waiting = Box::pin(create(&worker));
    assert!(world.env.timeout(seconds(1), &mut waiting).await.is_err());
    world.clients.drain();
    assert!(crate::draining(&waiting.await.unwrap_err()));
    assert_eq!(world.env.now().since_origin(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn dropped_request_releases_the_token_request_to_the_next() {
    let (world, shelf, client) = world_of_one();
    shelf.lock().unwrap().instead = Some(Instead::Silence);
    assert!(world.env.timeout(seconds(1), get(&client)).await.is_err());
    shelf.lock().unwrap().instead = None;
    get(&client).await.unwrap();
    assert_eq!(world.env.now().since_origin(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn account_tokens_appear_in_no_debug_output() {
    let (world, shelf, client) = world_of_one();
    get(&client).await.unwrap();
    let clients = world.clients.for_controller("one").unwrap();
    let mut printed = format!("{:?} {clients:?} {:?}", world.clients, options());
    shelf.lock().unwrap().instead = Some(Instead::Status(500, BUSY));
    world.env.sleep(seconds(3601)).await;
    let error = get(&client).await.unwrap_err();
    printed += &format!("{error} {error:?} {error:#?} {}", one_line(&error));
    assert!(!printed.contains("s3cr3t"), "{printed}");
}
