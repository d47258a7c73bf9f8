//! What only the modern era of MCP has, for the example server: discovery, listen streams, questions
//! as results. Nothing is remembered from one request to the next but what streams there are.
//!
//! Source: MCP 2026-07-28 `basic/index`, `basic/patterns/*`, `server/discover`.

use serde_json::{Value, json};

use super::reply::{Reply, meta, refusal};
use super::server::{
    Act, GREET, INSTRUCTIONS, LAST, LEVELS, Refusal, Server, capabilities, greeting, question,
};
use crate::protocol::ModernVersion;

/// `_meta` of a request: its version. Its presence makes the request a modern one.
pub(super) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

/// Streams that a host may have open.
const LISTEN_LIMIT: usize = 32;

/// What a retry brings back: nothing needs to be kept of the first request.
const STATE: &str = "greet";

impl Server {
    /// What to do about a modern request.
    pub(super) fn handle_modern(
        &mut self,
        method: &str,
        id: &str,
        params: &Value,
        line: &str,
    ) -> Vec<Act> {
        if let Some(refused) = metadata_refusal(id, &params["_meta"]) {
            return vec![Act::Send(refused)];
        }
        let before = self.level;
        let level = params["_meta"][LEVEL_KEY].as_str();
        self.level = level.and_then(|asked| LEVELS.iter().position(|level| *level == asked));
        let acts = self.modern_answer(method, id, params, line);
        self.level = before;
        acts
    }

    fn modern_answer(&mut self, method: &str, id: &str, params: &Value, line: &str) -> Vec<Act> {
        let reply = Reply::modern(id, method != "tools/call");
        let answer = match method {
            "server/discover" => Ok(json!({
                "supportedVersions": ModernVersion::ALL.map(ModernVersion::as_str),
                "capabilities": capabilities(),
                "instructions": INSTRUCTIONS,
            })),
            "tools/list" => Ok(json!({"tools": self.tools()})),
            "tools/call" if params["name"] == GREET => {
                return vec![Act::Send(greet(&reply, params))];
            }
            "tools/call" => return self.call(&reply, params, line),
            "resources/list" => Ok(json!({"resources": [Self::resource()]})),
            "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
            "resources/read" => self.read(params, -32602),
            "subscriptions/listen" => return self.listen(id, params),
            other => Err(Refusal {
                code: -32601,
                message: format!("unknown method {other}"),
            }),
        };
        vec![Act::Send(reply.answered(answer))]
    }

    /// Opens a stream: acknowledged with what it will carry.
    fn listen(&mut self, id: &str, params: &Value) -> Vec<Act> {
        if !params["notifications"].is_object() || self.listens.len() >= LISTEN_LIMIT {
            let why = "notifications is no object, or too many streams are open";
            return vec![Act::Send(refusal(id, -32602, why))];
        }
        let uris = params["notifications"]["resourceSubscriptions"].as_array();
        let carries = uris.is_some_and(|uris| uris.iter().any(|uri| uri == LAST));
        let honoured = match carries {
            true => json!({"resourceSubscriptions": [LAST]}),
            false => json!({}),
        };
        if carries {
            self.listens.push(id.to_owned());
        }
        vec![Act::Send(on_stream(
            id,
            "notifications/subscriptions/acknowledged",
            &format!(r#","notifications":{honoured}"#),
        ))]
    }
}

/// What is wrong with the metadata of a request.
fn metadata_refusal(id: &str, metadata: &Value) -> Option<String> {
    let version = metadata[VERSION_KEY].as_str().unwrap_or_default();
    if ModernVersion::parse(version).is_none() {
        let data = json!({
            "supported": ModernVersion::ALL.map(ModernVersion::as_str),
            "requested": version,
        });
        return Some(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32022,"message":"Unsupported protocol version","data":{data}}}}}"#
        ));
    }
    let level = &metadata[LEVEL_KEY];
    if !metadata[CAPABILITIES_KEY].is_object() {
        return Some(refusal(id, -32602, "_meta has no clientCapabilities"));
    }
    let is_known = level.is_null() || LEVELS.iter().any(|known| level == known);
    (!is_known).then(|| refusal(id, -32602, "_meta has an unknown logLevel"))
}

/// The user is asked by the result; the retry brings the answer.
fn greet(reply: &Reply, params: &Value) -> String {
    let answer = &params["inputResponses"]["name"];
    if params["requestState"] == STATE && answer.is_object() {
        return reply.result(&greeting(answer));
    }
    if !params["_meta"][CAPABILITIES_KEY]["elicitation"].is_object() {
        let data = json!({"requiredCapabilities": {"elicitation": {}}});
        return format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32021,"message":"this tool asks the user","data":{data}}}}}"#,
            reply.id()
        );
    }
    let asked = json!({"name": {"method": "elicitation/create", "params": question()}});
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"input_required","inputRequests":{asked},"requestState":"{STATE}",{}}}}}"#,
        reply.id(),
        meta()
    )
}

/// The news on a stream that the resource has changed.
pub(super) fn updated(listen: &str) -> String {
    let uri = format!(r#","uri":"{LAST}""#);
    on_stream(listen, "notifications/resources/updated", &uri)
}

fn on_stream(listen: &str, method: &str, members: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{listen}}}{members}}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(lines: &[String]) -> Vec<Value> {
        let mut server = Server::new(10);
        let acts = lines.iter().flat_map(|line| server.handle(line));
        acts.map(|act| match act {
            Act::Send(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    fn modern(id: u64, method: &str, meta: &str, members: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"{VERSION_KEY}":"2026-07-28"{meta}}}{members}}}}}"#
        )
    }

    const ABLE: &str = r#","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
    const NOT_ABLE: &str = r#","io.modelcontextprotocol/clientCapabilities":{}"#;

    #[test]
    fn discovery_and_lists_carry_what_every_modern_result_carries() {
        for method in ["server/discover", "tools/list", "resources/list"] {
            let result = &sent(&[modern(1, method, ABLE, "")])[0]["result"];
            assert_eq!(result["resultType"], "complete", "{method}");
            assert_eq!(result["ttlMs"], 0);
            let name = &result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
            assert_eq!(name, "calculator");
        }
        let found = &sent(&[modern(1, "server/discover", ABLE, "")])[0]["result"];
        assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    }

    #[test]
    fn a_calculation_is_complete_and_heard_on_a_stream() {
        let listen = r#","notifications":{"resourceSubscriptions":["calculator://last","x"],"toolsListChanged":true}"#;
        let loud = format!(r#"{ABLE},"{LEVEL_KEY}":"debug""#);
        let add = r#","name":"add","arguments":{"a":2,"b":3}"#;
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
        let mut server = Server::new(10);
        let mut said = Vec::new();
        for line in [
            modern(7, "subscriptions/listen", ABLE, listen),
            modern(8, "tools/call", &loud, add),
            cancel.to_owned(),
            modern(9, "tools/call", ABLE, add),
        ] {
            for act in server.handle(&line) {
                if let Act::Send(text) = act {
                    said.push(serde_json::from_str::<Value>(&text).unwrap());
                }
            }
        }
        let honoured = &said[0]["params"]["notifications"];
        assert_eq!(
            *honoured,
            json!({"resourceSubscriptions": ["calculator://last"]})
        );
        assert_eq!(said[1]["method"], "notifications/message");
        assert_eq!(
            said[2]["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
            7
        );
        assert_eq!(said[3]["result"]["structuredContent"], json!({"result": 5}));
        assert_eq!(said[4]["id"], 9);
        assert_eq!(said.len(), 5);
    }

    #[test]
    fn the_user_is_asked_by_a_result() {
        let name = r#","name":"greet""#;
        let asked = &sent(&[modern(1, "tools/call", ABLE, name)])[0]["result"];
        assert_eq!(asked["resultType"], "input_required");
        assert_eq!(
            asked["inputRequests"]["name"]["method"],
            "elicitation/create"
        );
        let retry = format!(
            r#"{name},"requestState":{},"inputResponses":{{"name":{{"action":"accept","content":{{"name":"Ada"}}}}}}"#,
            asked["requestState"]
        );
        let greeted = &sent(&[modern(2, "tools/call", ABLE, &retry)])[0]["result"];
        assert_eq!(greeted["content"][0]["text"], "hello, Ada");
        let refused = &sent(&[modern(3, "tools/call", NOT_ABLE, name)])[0]["error"];
        assert_eq!(refused["code"], -32021);
    }

    #[test]
    fn what_is_wrong_with_a_modern_request_is_said() {
        for (line, code) in [
            (
                modern(1, "tools/list", ABLE, "").replace("2026-07-28", "2025-11-25"),
                -32022,
            ),
            (modern(1, "tools/list", "", ""), -32602),
            (
                modern(
                    1,
                    "tools/list",
                    &format!(r#"{ABLE},"{LEVEL_KEY}":"loud""#),
                    "",
                ),
                -32602,
            ),
            (modern(1, "ping", ABLE, ""), -32601),
            (modern(1, "initialize", ABLE, ""), -32601),
            (modern(1, "resources/read", ABLE, r#","uri":"x""#), -32602),
            (modern(1, "subscriptions/listen", ABLE, ""), -32602),
        ] {
            assert_eq!(
                sent(std::slice::from_ref(&line))[0]["error"]["code"],
                code,
                "{line}"
            );
        }
    }
}
