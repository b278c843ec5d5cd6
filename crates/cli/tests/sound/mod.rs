//! What the report of a demo says if its network was sound.

use serde_json::Value;

/// A number of a report.
pub(crate) fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {report}"))
}

/// Nothing was misdelivered, and everything happened that a demo is to show.
pub(crate) fn assert_sound(report: &Value, network: &str, n_names: u64) {
    assert_eq!(report["network"], network);
    assert_eq!(number(report, "frames_misdelivered"), 0, "{report}");
    assert_eq!(number(report, "pings_answered"), number(report, "pings_sent"), "{report}");
    assert!(number(report, "pings_sent") > 0 && number(report, "names") >= n_names, "{report}");
    for key in ["names_added", "names_moved", "names_removed", "host_moves", "frames_delivered", "image_bytes_max"] {
        assert!(number(report, key) > 0, "{key} in {report}");
    }
    assert!(report["converged_ms"].as_f64().unwrap() > 0.0, "{report}");
    let seen: u64 = report["phases"].as_array().unwrap().iter().map(|p| number(p, "seen")).sum();
    assert!(number(report, "missed_by_sniffers") * 1000 <= seen, "frames pass without being judged: {report}");
    // In a ring of three nothing leads through a switch.
    assert!(number(report, "switches") <= 3 || number(report, "drain_steps") > 0, "{report}");
    let to_nobody: u64 = report["phases"].as_array().unwrap().iter().map(|p| number(p, "sent_to_nobody")).sum();
    assert!(to_nobody > 0, "no probe went to a removed or unknown name: {report}");
    // A loaded machine loses frames, and so does a name that moves; a network that loses one in a hundred is broken.
    assert!(number(report, "frames_lost") * 100 < number(report, "frames_sent"), "{report}");
}
