from sphinx_verl_resources.testing import assert_data


def test_data():
    assert_data("docs/data")
