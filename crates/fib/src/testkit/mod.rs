//! What every design promises, as functions that take designs and panic where one breaks its promise. The tests of this
//! crate run them over its designs, and those of `papers` over the others.

mod bursts;
mod figures;
pub(crate) mod files;
mod many_actions;
mod rates;

pub use crate::network::laws::{
    destinations_share_where_a_lookup_asks_for_one_value_after_the_other, followers_commit_the_same_rows,
    network_of_an_earlier_version_goes_on, serves_a_network, switches_hold_the_configured_rate,
};
pub use bursts::{bursts_in_flight_have_values_that_were_served, long_texts_are_told_apart};
pub use figures::{
    every_design_has_a_row_that_it_can_be_built_with, figures_of_any_demand_are_numbers,
    memory_does_not_depend_on_the_length_of_names_but,
};
pub use files::{damaged_files_are_refused, names_keep_their_actions_through_a_file, specs_travel_in_messages};
pub use many_actions::tables_of_many_actions_say_what_aliens_get;
pub use rates::aliens_pass_at_the_wanted_rate_at_most;
