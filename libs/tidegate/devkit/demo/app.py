"""Flights from New York in 2013 and the weather: change anything here, and run `tidegate demo` again."""

import tidegate as tg

app = tg.Application("flights", kafka="127.0.0.1:9092", lake="lake", keep_output="forever")

# At most one update of each carrier and airport in 30 minutes
departures = app.stream("departures", name="carrier_updates", key=tg.string(), value=tg.json())
departures.suppress(tg.time_limit("30m"), tg.max_keys(1_000, when_full="emit")).to("carrier-updates")

# Each flight with the weather at its scheduled time, although flights and readings arrive out of order
weather = app.table("weather", history="400d", key=tg.string(), value=tg.json({"wind_speed": "float64"}))
flights = app.stream("departures-by-airport", name="flights_with_weather", key=tg.string(), value=tg.json())
flights.join(weather, how="left", grace="2h").to("flights-with-weather")

# Departures in each hour, by carrier and airport: one final result per window
hours = app.stream("departures", name="departures_per_hour", key=tg.string(), value=tg.json())
hours.window(tg.tumbling("1h", grace="2h")).count().suppress(tg.window_close()).to("departures-per-hour")

# Departures in any hour, by airport: hopping windows, kept in the lake alone
traffic = app.stream("departures-by-airport", name="airport_traffic", key=tg.string(), value=tg.json())
traffic.window(tg.hopping("1h", advance="10m", grace="2h")).count().suppress(tg.window_close()).keep()

# Hours in which strong wind delayed at least three departures: three steps with one log and one commit
storms = app.stream("departures-by-airport", name="late_storms", key=tg.string(), value=tg.json({"delay_min": "int64"}))
windy = storms.join(weather, how="left", grace="2h").with_columns(windy="weather.wind_speed > 20")
delayed = windy.filter("windy and delay_min > 15")
worst = delayed.window(tg.tumbling("1h", grace=0)).aggregate(n=tg.count(), worst=tg.max("delay_min"), name="hours")
worst.suppress(tg.window_close(), name="final").filter("n >= 3").to("late-storms")

if __name__ == "__main__":
    app.run()
