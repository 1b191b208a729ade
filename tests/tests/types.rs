//! The tensor types that files name, the weight types that are computed, and the recorded blocks agree on every size.

use muser_gguf::TensorType;
use muser_quant::WeightType;
use serde_json::Value;

#[test]
fn every_computed_type_has_the_files_id_name_and_block() {
    for computed in WeightType::ALL {
        let stored = TensorType::from_id(computed.ggml_id()).unwrap();
        assert_eq!(stored.name(), computed.name());
        assert_eq!(stored.block_len(), computed.block_len() as u64, "{stored}");
        assert_eq!(stored.block_bytes(), computed.block_bytes() as u64, "{stored}");
    }
}

#[test]
fn every_type_in_the_golden_data_is_known_by_its_id_name_and_block() {
    let golden: Value = serde_json::from_str(include_str!("../data/golden/dequant.json")).unwrap();
    let golden = golden.as_object().unwrap();
    assert!(!golden.is_empty());
    for (name, recorded) in golden {
        let number = |key: &str| recorded[key].as_u64().unwrap();
        let stored = TensorType::from_id(u32::try_from(number("type_id")).unwrap()).unwrap();
        assert_eq!(stored.name(), name);
        assert_eq!(stored.block_len(), number("block_elems"), "{name}");
        assert_eq!(stored.block_bytes(), number("block_bytes"), "{name}");
    }
}
