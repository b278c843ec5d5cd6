//! Where an etcd is, as text: `etcd://HOST:PORT,HOST:PORT/PREFIX`.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

const FORM: &str = "write it like etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/fibula";

/// The members of an etcd cluster, and the prefix of our keys there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdAddress {
    /// `HOST:PORT` of each member.
    pub members: Vec<String>,
    /// Without a slash at its ends.
    pub prefix: String,
}

impl FromStr for EtcdAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("etcd://").ok_or_else(|| format!("{text:?} is not of etcd; {FORM}"))?;
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        if prefix.is_empty() {
            return Err(format!("{text:?} has no prefix, under which the store's keys are; {FORM}"));
        }
        let is_member = |member: &str| {
            member.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
                && format!("http://{member}").parse::<tonic::transport::Uri>().is_ok()
        };
        let members: Vec<String> = members.split(',').map(|member| member.trim().to_owned()).collect();
        match members.iter().find(|member| !is_member(member)) {
            Some(member) => Err(format!("{member:?} in {text:?} is not HOST:PORT of a member; {FORM}")),
            None => Ok(EtcdAddress { members, prefix: prefix.to_owned() }),
        }
    }
}

impl Display for EtcdAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.members.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_comes_back_from_its_text_and_others_are_refused_with_the_form() {
        for text in ["etcd://a:1/p", "etcd://10.0.0.1:2379,[::1]:2379/fibula/site"] {
            assert_eq!(text.parse::<EtcdAddress>().unwrap().to_string(), text);
        }
        for text in ["/var/x", "etcd://a:1", "etcd://a:1/", "etcd://a/p", "etcd://a:1,/p", "etcd://a:x/p", "etcd:///p"]
        {
            let message = text.parse::<EtcdAddress>().unwrap_err();
            assert!(message.contains("write it like"), "{text}: {message}");
        }
    }
}
