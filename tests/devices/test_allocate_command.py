"""``dray allocate``: lines in, lines out, whatever the lines are."""

from __future__ import annotations

import copy
import json
from typing import Any

from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.cli.allocate import STATES_TOLD, _answer, allocate

Json = dict[str, Any]
CLASS = {"metadata": {"name": "gpu"}, "spec": {}}


def node(name: str) -> Json:
    return {"metadata": {"name": name}}


def slice_(name: str, devices: int = 2, **device: Any) -> Json:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    made = [{"name": f"d{i}", **device} for i in range(devices)]
    return {"metadata": {"name": name}, "spec": {"driver": "gpu.example.com", "pool": pool, "nodeName": name, "devices": made}}


def claim(name: str = "c", **fields: Any) -> Json:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", **fields}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}


def line(**fields: Any) -> Json:
    return {"classes": [CLASS], "slices": [slice_("n1"), slice_("n2")], **fields}


def run(*lines: Any) -> tuple[list[Json], int]:
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    done = CliRunner().invoke(allocate, ["-"], input=text.encode())
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return [json.loads(each) for each in done.stdout.splitlines()], done.exit_code


def devices(answer: Json) -> list[str]:
    return [each["device"] for result in answer["results"] for each in result["devices"]["results"]]


def test_one_node() -> None:
    (answer,), code = run(line(id="x", node=node("n1"), claims=[claim(count=2)]))
    assert code == 0
    assert answer["id"] == "x"
    assert answer["ok"] is True
    assert devices(answer) == ["d0", "d1"]
    assert answer["steps"] > 0


def test_it_does_not_fit() -> None:
    (answer,), code = run(line(node=node("n1"), claims=[claim(count=3)]))
    assert code == 0
    assert answer["ok"] is False
    assert "error" not in answer
    (reason,) = answer["reasons"]
    assert reason["code"] == "NotEnoughDevices"
    assert set(reason) == {"code", "message", "object", "data"}


def test_impossible_anywhere() -> None:
    (answer,), _ = run(line(node=node("n1"), claims=[claim(deviceClassName="none")]))
    assert "could not retrieve device class none" in answer["error"]
    assert "nodeError" not in answer


def test_each_node() -> None:
    (answer,), _ = run(line(nodes=[node("n1"), node("n2"), node("n3")], claims=[claim()]))
    assert [(each["node"], each["ok"]) for each in answer["perNode"]] == [("n1", True), ("n2", True), ("n3", False)]


def test_many_pods_fill_nodes_in_order() -> None:
    (answer,), _ = run(line(nodes=[node("n1"), node("n2")], pods=[[claim()] for _ in range(5)]))
    assert [each.get("node") for each in answer["pods"]] == ["n1", "n1", "n2", "n2", None]
    assert (answer["scheduled"], answer["unschedulable"]) == (4, 1)
    assert answer["micros"] >= 0


def test_a_pod_that_no_node_takes_is_told_why() -> None:
    slices = [slice_("n1"), slice_("n2"), slice_("n3", 1)]
    pods = [[claim("a")], [claim("b", count=3)], [claim("c", count=2)], [claim("d", count=2)], [claim("d", count=2)]]
    (answer,), _ = run(line(slices=slices, nodes=[node(f"n{number}") for number in range(1, 5)], pods=pods))
    _, big, placed, first, again = answer["pods"]
    assert placed["node"] == "n2"
    told = {reason["object"]: (reason["code"], reason["data"].get("free")) for reason in big["reasons"]}
    assert told == {
        "node/n1": ("NotEnoughDevices", 1),
        "node/n2": ("NotEnoughDevices", 2),
        "node/n3": ("NotEnoughDevices", 1),
        "node/n4": ("NoDevices", None),
    }
    assert big["summary"].startswith("0/4 nodes are available: 3 nodes have not enough devices of class gpu")
    # What was placed in between is seen.
    assert {reason["object"]: reason["data"].get("free") for reason in first["reasons"]}["node/n2"] == 0
    assert again == first


def test_nodes_in_one_state_are_told_by_one_of_them_and_only_so_many_states_are_looked_into() -> None:
    names = [f"n{number}" for number in range(60)]
    slices = [slice_(name, 1 + number // 3) for number, name in enumerate(names)]
    (answer,), _ = run(line(slices=slices, nodes=[node(name) for name in names], pods=[[claim(count=30)]]))
    (refused,) = answer["pods"]
    assert len(refused["reasons"]) == STATES_TOLD + 1
    assert refused["summary"].startswith("0/60 nodes are available: ")
    assert f"{60 - 3 * STATES_TOLD} nodes have not enough devices" in refused["summary"]


def test_many_pods_without_nodes() -> None:
    (answer,), _ = run(line(pods=[[claim()]]))
    assert [reason["code"] for reason in answer["pods"][0]["reasons"]] == ["NoNodes"]


def test_many_pods_in_rotation() -> None:
    (answer,), _ = run(line(nodes=[node("n1"), node("n2")], rotate=True, pods=[[claim()] for _ in range(5)]))
    assert [each.get("node") for each in answer["pods"]] == ["n1", "n2", "n1", "n2", None]


def test_shares_have_counted_ids() -> None:
    shared = slice_("n1", 1, allowMultipleAllocations=True)
    (answer,), _ = run({"classes": [CLASS], "slices": [shared], "node": node("n1"), "claims": [claim("a"), claim("b")]})
    ids = [each["shareID"] for result in answer["results"] for each in result["devices"]["results"]]
    assert ids == ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"]


def test_a_feature_that_is_off() -> None:
    tainted = slice_("n1", 1, taints=[{"key": "k", "effect": "NoSchedule"}])
    question = {"classes": [CLASS], "slices": [tainted], "node": node("n1"), "claims": [claim()]}
    (on, off, gate), _ = run(
        question, {**question, "features": {"DeviceTaints": False}}, {**question, "features": {"DRADeviceTaints": False}}
    )
    assert not on["ok"]
    assert off["ok"]
    assert gate["ok"]


def test_taint_rules() -> None:
    rule = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"device": "d0"}, "taint": {"key": "k", "effect": "NoSchedule"}},
    }
    (answer,), _ = run(line(node=node("n1"), claims=[claim()], taintRules=[rule]))
    assert devices(answer) == ["d1"]


def test_raw_objects_are_not_defaulted() -> None:
    (answer,), _ = run(line(node=node("n1"), claims=[claim()], raw=True))
    assert "unsupported count mode" in answer["error"]


def test_validation_names_field_and_problem_and_is_an_answer() -> None:
    (answer,), code = run(line(node=node("n1"), claims=[claim(allocationMode="Some")], validate=True))
    assert code == 0
    assert answer["ok"] is False
    assert any("allocationMode" in problem for problem in answer["invalid"])


def test_validation_says_what_is_wrong_with_a_field_that_is_missing() -> None:
    asked = claim(selectors=[{}], deviceClassName="", tolerations=[{"operator": "Exists"}])
    (answer,), _ = run(line(node=node("n1"), claims=[asked], validate=True))
    path = "spec.devices.requests[0].exactly"
    assert answer["invalid"] == [f"{path}.deviceClassName: must be set", f"{path}.selectors[0].cel: must be set"]


def test_bad_lines_are_answered_and_the_rest_still_runs() -> None:
    good = line(id="good", node=node("n1"), claims=[claim()])
    bad = [
        "{",
        "[]",
        "7",
        '"x"',
        json.dumps({"id": 1, "node": 3, "claims": []}),
        json.dumps({"claims": []}),
        json.dumps({"node": node("n")}),
    ]
    bad += [json.dumps({**good, "features": {"Nope": True}}), json.dumps({**good, "slices": [{"spec": {"devices": 7}}]})]
    bad += [
        json.dumps({**good, "claims": [{"spec": {"devices": {"requests": [{"exactly": 7}]}}}]}),
        json.dumps({**good, "claims": [7]}),
    ]
    answers, code = run(*bad, good)
    assert code == 2
    assert len(answers) == len(bad) + 1
    for answer in answers[:-1]:
        assert answer["ok"] is False
        assert answer["invalid"]
    assert answers[-1]["ok"] is True


def test_empty_lines_are_skipped_and_null_counts_as_absent() -> None:
    answers, code = run("", line(node=node("n1"), claims=[claim()], allocatedClaims=None, features=None), "  ")
    assert code == 0
    assert [answer["ok"] for answer in answers] == [True]


def test_what_other_claims_hold_is_taken() -> None:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    held = [{**claim(name), "status": {"allocation": {"devices": {"results": [result]}}}} for name in ("a", "b")]
    (answer,), _ = run(line(node=node("n1"), claims=[claim()], allocatedClaims=held))
    assert devices(answer) == ["d1"]


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**30),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.just([7]),
    st.sampled_from(["-1", "1e9", "much", "All"]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a JSON value."""
    inside: list[tuple[Any, ...]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        inside += [(*path, key), *places(item, (*path, key))]
    return inside


RICH: Json = json.loads(
    """
{
 "classes": [
  {
   "metadata": {
    "name": "gpu"
   },
   "spec": {
    "selectors": [
     {
      "cel": {
       "expression": "device.driver == \\"gpu.example.com\\""
      }
     }
    ]
   }
  }
 ],
 "node": {
  "metadata": {
   "name": "n1",
   "labels": {
    "zone": "a"
   }
  }
 },
 "slices": [
  {
   "metadata": {
    "name": "s"
   },
   "spec": {
    "driver": "gpu.example.com",
    "pool": {
     "name": "p",
     "generation": 1,
     "resourceSliceCount": 2
    },
    "perDeviceNodeSelection": true,
    "devices": [
     {
      "name": "a",
      "nodeSelector": {
       "nodeSelectorTerms": [
        {
         "matchExpressions": [
          {
           "key": "zone",
           "operator": "In",
           "values": [
            "a"
           ]
          }
         ]
        }
       ]
      },
      "attributes": {
       "root": {
        "string": "x"
       },
       "zones": {
        "ints": [
         1,
         2
        ]
       }
      },
      "allowMultipleAllocations": true,
      "capacity": {
       "memory": {
        "value": "8",
        "requestPolicy": {
         "default": "1",
         "validRange": {
          "min": "1",
          "max": "8",
          "step": "1"
         }
        }
       }
      },
      "consumesCounters": [
       {
        "counterSet": "g",
        "counters": {
         "slots": {
          "value": "1"
         }
        },
        "compatibilityGroups": [
         "x"
        ]
       }
      ],
      "taints": [
       {
        "key": "k",
        "effect": "NoSchedule"
       }
      ]
     }
    ]
   }
  },
  {
   "metadata": {
    "name": "t"
   },
   "spec": {
    "driver": "gpu.example.com",
    "pool": {
     "name": "p",
     "generation": 1,
     "resourceSliceCount": 2
    },
    "allNodes": true,
    "sharedCounters": [
     {
      "name": "g",
      "counters": {
       "slots": {
        "value": "4"
       }
      }
     }
    ]
   }
  }
 ],
 "allocatedClaims": [
  {
   "metadata": {
    "name": "old",
    "namespace": "default",
    "uid": "u"
   },
   "status": {
    "allocation": {
     "devices": {
      "results": [
       {
        "request": "r",
        "driver": "gpu.example.com",
        "pool": "p",
        "device": "a",
        "shareID": "s",
        "consumedCapacity": {
         "memory": "1"
        },
        "compatibilityGroups": {
         "g": [
          "x"
         ]
        }
       }
      ]
     }
    }
   }
  }
 ],
 "claims": [
  {
   "metadata": {
    "name": "c",
    "namespace": "default"
   },
   "spec": {
    "devices": {
     "requests": [
      {
       "name": "r",
       "exactly": {
        "deviceClassName": "gpu",
        "selectors": [
         {
          "cel": {
           "expression": "device.allowMultipleAllocations"
          }
         }
        ],
        "capacity": {
         "requests": {
          "memory": "2"
         }
        },
        "tolerations": [
         {
          "operator": "Exists"
         }
        ]
       }
      },
      {
       "name": "f",
       "firstAvailable": [
        {
         "name": "x",
         "deviceClassName": "gpu",
         "count": 3,
         "tolerations": [
          {
           "operator": "Exists"
          }
         ]
        }
       ]
      }
     ],
     "constraints": [
      {
       "matchAttribute": "gpu.example.com/root"
      },
      {
       "requests": [
        "r"
       ],
       "distinctAttribute": "gpu.example.com/zones"
      }
     ],
     "config": [
      {
       "opaque": {
        "driver": "gpu.example.com",
        "parameters": {}
       }
      }
     ]
    }
   }
  }
 ]
}
    """
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(places(RICH)), JUNK), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_no_line_stops_the_command(changes: list[tuple[tuple[Any, ...], Any]], raw: bool, validate: bool) -> None:
    question: Any = copy.deepcopy(RICH)
    for path, junk in changes:
        replace(question, path, junk)
    answer, _ = _answer(json.dumps({**question, "raw": raw, "validate": validate}).encode())
    assert isinstance(answer["ok"], bool)


def replace(value: Any, path: tuple[Any, ...], junk: Any) -> None:
    """Put junk at a path, unless earlier junk already stands in its way."""
    for key in path[:-1]:
        value = value[key] if holds(value, key) else None
    if holds(value, path[-1]):
        value[path[-1]] = copy.deepcopy(junk)


def holds(value: Any, key: Any) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and key < len(value)


def test_a_pretty_printed_file_is_one_question() -> None:
    first, second = (line(id=name, node=node("n1"), claims=[claim(count=2)]) for name in ("x", "y"))
    for indent in (1, 2, None):
        answers, code = run(json.dumps(first, indent=indent), json.dumps(second, indent=indent))
        assert [answer["id"] for answer in answers] == ["x", "y"]
        assert code == 0
    by_hand = json.dumps(first).replace(', "slices"', ',\n "slices"').replace(', "claims"', ',\n "claims"')
    (answer,), code = run(by_hand)
    assert (answer["ok"], code) == (True, 0)


def test_a_broken_line_is_still_one_line() -> None:
    good = line(id="x", node=node("n1"), claims=[claim()])
    answers, code = run('{"id": "broken", "node": {', good, "{", "nonsense", good)
    assert [answer.get("id") for answer in answers] == [None, "x", None, None, "x"]
    assert code == 2


def test_keys_that_no_question_has_are_named() -> None:
    (answer,), code = run(line(node=node("n1"), claims=[claim()], slizes=[], taintrules=[]))
    assert answer["unknown"] == ["slizes", "taintrules"]
    assert code == 0
    (answer,), _ = run(line(node=node("n1"), claims=[claim()]))
    assert "unknown" not in answer
