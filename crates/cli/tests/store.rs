//! `fibula store`: check, back up, repair, restore.

mod support;

use api::v1;
use support::{Site, add_full_mesh, exit_code, record, stderr};

#[tokio::test(flavor = "multi_thread")]
async fn store_is_checked_backed_up_and_restored() {
    let site = Site::new("");
    let controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 1).await;
    let put = |index| v1::PutNamesRequest { names: vec![record(index, "h1")], only_new: true };
    client.put_names(put(1)).await.unwrap();
    let (store, copy) = (site.path("rib.sqlite"), site.path("copy"));
    let [store_text, copy_text] = [&store, &copy].map(|path| path.to_str().unwrap().to_owned());
    let check = || site.fibula(&["store", "check", "--store", &store_text]);
    let busy = check();
    assert_eq!(exit_code(&busy), 5, "{}", stderr(&busy));
    assert_eq!(controller.terminate(), Some(0));

    assert_eq!(exit_code(&check()), 0);
    let backed_up = site.fibula(&["store", "backup", "--store", &store_text, "--to", &copy_text]);
    assert_eq!(exit_code(&backed_up), 0, "{}", stderr(&backed_up));
    let controller = site.start();
    let mut client = site.client().await;
    client.put_names(put(0xa1b2_c3d4)).await.unwrap();
    assert_eq!(controller.terminate(), Some(0));

    let mut bytes = std::fs::read(&store).unwrap();
    let name = [2, 0, 0xa1, 0xb2, 0xc3, 0xd4];
    let at = bytes.windows(6).position(|window| window == name).unwrap();
    bytes[at + 6] ^= 1;
    std::fs::write(&store, bytes).unwrap();
    let damaged = check();
    assert_eq!(exit_code(&damaged), 6, "{}", stderr(&damaged));
    assert!(stderr(&damaged).contains("kind 5, key 0200a1b2c3d4"), "{}", stderr(&damaged));
    let config = site.path("controller.toml");
    let refused = site.fibula(&["controller", "--config", config.to_str().unwrap()]);
    assert_eq!(exit_code(&refused), 3);
    assert!(stderr(&refused).contains("is damaged"), "{}", stderr(&refused));

    let new = site.path("new").to_str().unwrap().to_owned();
    let repaired = site.fibula(&["store", "repair", "--store", &store_text, "--to", &new]);
    assert_eq!(exit_code(&repaired), 6, "{}", stderr(&repaired));
    let told = String::from_utf8(repaired.stdout).unwrap();
    let lines =
        ["1 host ports, 1 hosts, 1 names, 1 switches", "1 rows are missing", "lost: the name 02:00:a1:b2:c3:d4, "];
    assert!(lines.iter().all(|line| told.contains(line)), "{told}");
    let in_place = site.fibula(&["store", "restore", "--from", &new, "--store", &store_text]);
    assert_eq!(exit_code(&in_place), 0, "{}", stderr(&in_place));
    let controller = site.start();
    let mut client = site.client().await;
    let names = client.list_names(v1::ListNamesRequest::default()).await.unwrap().into_inner().names;
    assert_eq!(names, [record(1, "h1")], "all but the damaged one");
    assert_eq!(controller.terminate(), Some(0));

    let restored = site.fibula(&["store", "restore", "--from", &copy_text, "--store", &store_text]);
    assert_eq!(exit_code(&restored), 0, "{}", stderr(&restored));
    let _controller = site.start();
    let mut client = site.client().await;
    let names = client.list_names(v1::ListNamesRequest::default()).await.unwrap().into_inner().names;
    assert_eq!(names.len(), 1, "those of the copy");
}
